// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bytes"
	"embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

// PauseImage holds the namespaces of each pod.
const PauseImage = "agentsession.dev/pause:1"

//go:embed files
var sources embed.FS

var templates = template.Must(template.New("").
	Funcs(template.FuncMap{"join": strings.Join, "quote": quoteAll}).
	Option("missingkey=error").
	ParseFS(sources, "files/*"))

// view is what the templates see.
type view struct {
	config.Config
	Facts
	PauseImage    string
	DNSUser       string
	KubeletClient string
}

// Port gives a port by the name of its flag.
func (v view) Port(name string) int { return v.Ports[config.Port(name)] }

// Files are the configuration files, by path inside the state directory.
func Files(c config.Config, f Facts) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for path, name := range map[string]string{
		"audit.yaml":             "audit.yaml",
		"containerd.toml":        "containerd.toml",
		"kubelet.yaml":           "kubelet.yaml",
		"kube-proxy.yaml":        "kube-proxy.yaml",
		"Corefile":               "Corefile",
		"resolv.conf":            "resolv.conf",
		"cni/conf/node.conflist": "node.conflist",
	} {
		content, err := render(name, c, f)
		if err != nil {
			return nil, err
		}
		files[path] = content
	}
	return files, nil
}

// Manifests are the objects that the cluster needs besides what the apiserver
// makes itself, one YAML document each.
func Manifests(c config.Config) ([]string, error) {
	content, err := render("manifests.yaml", c, Facts{})
	if err != nil {
		return nil, err
	}
	return strings.Split(string(content), "\n---\n"), nil
}

func render(name string, c config.Config, f Facts) ([]byte, error) {
	var b bytes.Buffer
	v := view{Config: c, Facts: f, PauseImage: PauseImage, DNSUser: DNSUser, KubeletClient: KubeletClientUser}
	if err := templates.ExecuteTemplate(&b, name, v); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return b.Bytes(), nil
}

func quoteAll(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(quoted, ", ")
}
