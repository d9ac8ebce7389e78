// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

var kubeconfig = template.Must(template.New("kubeconfig").Parse(`apiVersion: v1
kind: Config
clusters:
- name: {{.Context}}
  cluster:
    server: {{.Server}}
    certificate-authority-data: {{.CA}}
users:
- name: {{.Context}}
  user:
    client-certificate-data: {{.Cert}}
    client-key-data: {{.Key}}
contexts:
- name: {{.Context}}
  context:
    cluster: {{.Context}}
    user: {{.Context}}
current-context: {{.Context}}
`))

// WriteKubeconfig writes a kubeconfig for the leaf of that name in dir, with all
// that it needs inside, so that the file can be copied.
func WriteKubeconfig(path, dir, ca, leaf, context, server string) error {
	data := struct{ Context, Server, CA, Cert, Key string }{Context: context, Server: server}
	for file, field := range map[string]*string{ca + ".crt": &data.CA, leaf + ".crt": &data.Cert, leaf + ".key": &data.Key} {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("writing the kubeconfig %s: %w", path, err)
		}
		*field = base64.StdEncoding.EncodeToString(content)
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := kubeconfig.Execute(f, data); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
