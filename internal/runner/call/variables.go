// SPDX-License-Identifier: Apache-2.0

package call

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/agentsession-dev/operator/internal/wire"
)

// Environment is all that a call finds in its environment. It is built from this
// list and the class's variables, which take the place of one of the list of the same
// name, and from nothing that the supervisor has in its own.
func Environment(workspace string, variables ...string) []string {
	env := []string{
		"PATH=" + searchPath,
		"HOME=" + wire.HomeDir,
		"LANG=C.UTF-8",
		"TERM=dumb",
		"TMPDIR=" + filepath.Dir(wire.HomeDir),
		// The workspace belongs to another user than the one git runs as.
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=safe.directory",
		"GIT_CONFIG_VALUE_0=" + workspace,
	}
	for _, v := range variables {
		name := nameOf(v)
		if i := slices.IndexFunc(env, func(e string) bool { return nameOf(e) == name }); i >= 0 {
			env[i] = v
			continue
		}
		env = append(env, v)
	}
	return env
}

func nameOf(variable string) string {
	name, _, _ := strings.Cut(variable, "=")
	return name
}

// variableForm is NAME=VALUE. What the kernel cannot pass on is no value.
var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00]*$`)

// CheckVariable refuses what is not a class's to set: what the sandbox makes (the home
// directory, the temporary one, what git may trust), what has bash or the dynamic linker run a
// file before the command, which an earlier call may have written, and what bash sets itself.
func CheckVariable(variable string) error {
	if !variableForm.MatchString(variable) {
		return fmt.Errorf("%.100q is no variable: write NAME=VALUE", variable)
	}
	name := nameOf(variable)
	switch name {
	case "HOME", "TMPDIR", "ENV", "SHELLOPTS", "IFS", "PWD", "SHLVL", "UID", "EUID", "PPID", "_":
		return fmt.Errorf("the variable %s is not the class's to set", name)
	}
	for _, prefix := range []string{"BASH", "GIT_CONFIG", "LD_"} {
		if strings.HasPrefix(name, prefix) {
			return fmt.Errorf("variables that begin with %s are not the class's to set: %s", prefix, name)
		}
	}
	return nil
}
