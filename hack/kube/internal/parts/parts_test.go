// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	audit "k8s.io/apiserver/pkg/apis/audit/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

func files(t *testing.T, f Facts) map[string][]byte {
	t.Helper()
	files, err := Files(config.Default(), f)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var facts = Facts{Runc: "/usr/sbin/runc", CNIDirs: []string{"/usr/lib/cni", "/opt/cni/bin"}, Snapshotter: "overlayfs", RestrictOOM: true, Nameservers: []string{"192.0.2.1"}}

// The files are what the pinned kubelet and kube-proxy read: no field is unknown
// to their types, and the settings that a machine like this needs are there.
func TestKubernetesFiles(t *testing.T) {
	var kubelet kubeletconfig.KubeletConfiguration
	if err := yaml.UnmarshalStrict(files(t, facts)["kubelet.yaml"], &kubelet); err != nil {
		t.Fatalf("kubelet.yaml: %v", err)
	}
	if kubelet.FailCgroupV1 == nil || *kubelet.FailCgroupV1 {
		t.Error("the kubelet refuses control groups of version 1")
	}
	if kubelet.OOMScoreAdj == nil || *kubelet.OOMScoreAdj != 0 {
		t.Error("the kubelet sets a score that root may not set here")
	}
	if kubelet.CgroupRoot != "/agentsession-dev" {
		t.Errorf("pods are in %s, where they are not found when cleaning up", kubelet.CgroupRoot)
	}
	var proxy proxyconfig.KubeProxyConfiguration
	if err := yaml.UnmarshalStrict(files(t, facts)["kube-proxy.yaml"], &proxy); err != nil {
		t.Fatalf("kube-proxy.yaml: %v", err)
	}
	if proxy.Conntrack.MaxPerCore == nil || *proxy.Conntrack.MaxPerCore != 0 {
		t.Error("kube-proxy changes the machine's connection tracking")
	}
	free := facts
	free.RestrictOOM = false
	if strings.Contains(string(files(t, free)["kubelet.yaml"]), "oomScoreAdj") {
		t.Error("the score is set where there is no need to")
	}
}

// audit.yaml is what the pinned apiserver reads, and leaves reads out.
func TestAuditPolicy(t *testing.T) {
	var p audit.Policy
	if err := yaml.UnmarshalStrict(files(t, facts)["audit.yaml"], &p); err != nil {
		t.Fatalf("audit.yaml: %v", err)
	}
	if len(p.Rules) != 2 || p.Rules[0].Level != audit.LevelNone || p.Rules[1].Level != audit.LevelMetadata {
		t.Errorf("the rules are %+v", p.Rules)
	}
}

// containerd.toml is TOML, and says what the facts say.
func TestContainerdFile(t *testing.T) {
	var got struct {
		Version int
		Plugins map[string]struct {
			RestrictOOM bool `toml:"restrict_oom_score_adj"`
			CNI         struct {
				BinDirs []string `toml:"bin_dirs"`
			} `toml:"cni"`
		}
	}
	if err := toml.Unmarshal(files(t, facts)["containerd.toml"], &got); err != nil {
		t.Fatal(err)
	}
	runtime := got.Plugins["io.containerd.cri.v1.runtime"]
	if got.Version != 3 || !runtime.RestrictOOM || len(runtime.CNI.BinDirs) != 2 {
		t.Errorf("containerd.toml = %+v", got)
	}
}

// The network's file is JSON; pods get addresses of the range.
func TestNetworkFile(t *testing.T) {
	content := files(t, facts)["cni/conf/node.conflist"]
	if !json.Valid(content) || !strings.Contains(string(content), `"subnet": "10.244.0.0/24"`) {
		t.Errorf("node.conflist:\n%s", content)
	}
}

// Without a nameserver of its own, the machine's cluster still answers for itself.
func TestDNSFile(t *testing.T) {
	if got := string(files(t, facts)["Corefile"]); !strings.Contains(got, "forward . 192.0.2.1\n") {
		t.Errorf("Corefile does not forward:\n%s", got)
	}
	if got := string(files(t, Facts{})["Corefile"]); strings.Contains(got, "forward") {
		t.Errorf("Corefile forwards to nobody:\n%s", got)
	}
}

// Each port that a flag can change is used by the part that the list names: by
// changing it, that part's arguments or its file change.
func TestPortsAreUsed(t *testing.T) {
	fileOf := map[string]string{"kubelet": "kubelet.yaml", "kube-proxy": "kube-proxy.yaml", "coredns": "Corefile"}
	for _, l := range config.Listeners {
		c := config.Default()
		c.Ports[l.Port] = 54321
		rendered, err := Files(c, facts)
		if err != nil {
			t.Fatal(err)
		}
		text := string(rendered[fileOf[l.Part]])
		for _, p := range All(c) {
			if p.Name == l.Part {
				text += strings.Join(p.Args, " ")
			}
		}
		if !strings.Contains(text, "54321") {
			t.Errorf("--%s changes nothing for %s", l.Port, l.Part)
		}
	}
}

// Each certificate, key and kubeconfig that an argument or file names is issued.
func TestNamedFilesAreIssued(t *testing.T) {
	c := config.Default()
	there := map[string]bool{}
	for _, name := range []string{Authority, FrontProxyAuthority, TokenKey, FrontProxyLeaf().Name} {
		there[name] = true
	}
	for _, l := range Leaves(c) {
		there[l.Name] = true
	}
	for _, name := range WithKubeconfig() {
		if !there[name] {
			t.Errorf("the kubeconfig %s has no certificate", name)
		}
	}
	for _, p := range All(c) {
		for _, arg := range p.Args {
			_, file, ok := strings.Cut(arg, c.Path("pki")+"/")
			if !ok {
				continue
			}
			if name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(file, ".crt"), ".key"), ".pub"); !there[name] {
				t.Errorf("%s: %s names what is not issued", p.Name, arg)
			}
		}
	}
}
