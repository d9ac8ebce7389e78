// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// What a credential helper is told by its environment, of which git keeps nothing.
const (
	envOrigin = "AGENTSESSION_SOURCE_ORIGIN"
	envKeyDir = "AGENTSESSION_SOURCE_CREDENTIALS"
)

// Credential answers git, which asks for the credentials of a server. It has them for the
// source's own server alone: one that redirects elsewhere does not learn them there.
// Nothing is ever stored.
func Credential(operation string, in io.Reader, out io.Writer) error {
	if operation != "get" {
		return nil
	}
	asked := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(in, 64<<10))
	for lines.Scan() && lines.Text() != "" {
		key, value, _ := strings.Cut(lines.Text(), "=")
		asked[key] = value
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading what git asks: %w", err)
	}
	if origin := os.Getenv(envOrigin); origin == "" || asked["protocol"]+"://"+asked["host"] != origin || asked["protocol"] != "https" {
		return nil
	}
	user, password, err := credentials(os.Getenv(envKeyDir), "")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "username=%s\npassword=%s\n", user, password)
	return err
}
