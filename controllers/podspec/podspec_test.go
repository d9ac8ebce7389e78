// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/pod-security-admission/api"
	psa "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// cases are all the shapes that a pod can have, by the name of their golden file.
var cases = map[string]func(*Input){
	"every-mode": func(*Input) {},
	"read-only-class": func(in *Input) {
		in.Class.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
	},
	"workspace-write-class": func(in *Input) {
		in.Class.Spec.Ceiling.MaxMode = v1alpha1.ModeWorkspaceWrite
	},
	"model-key": func(in *Input) {
		in.Class.Spec.Model.KeySecretName = "deepseek"
	},
	"class-storage-size": func(in *Input) {
		in.Class.Spec.Storage = &v1alpha1.ClassStorage{Storage: v1alpha1.Storage{Type: v1alpha1.StorageEmptyDir, Size: new(resource.MustParse("5Gi"))}}
	},
	"session-storage-size": func(in *Input) {
		in.Class.Spec.Storage = &v1alpha1.ClassStorage{Storage: v1alpha1.Storage{Type: v1alpha1.StorageEmptyDir, Size: new(resource.MustParse("5Gi"))}}
		in.Session.Spec.Workspace = &v1alpha1.Workspace{
			Storage: &v1alpha1.Storage{Type: v1alpha1.StorageEmptyDir, Size: new(resource.MustParse("64Mi"))},
		}
	},
	"persistent-storage": persistent,
	"git-source": func(in *Input) {
		in.Session.Spec.Workspace = &v1alpha1.Workspace{Source: &v1alpha1.WorkspaceSource{Type: v1alpha1.SourceGit, Git: &v1alpha1.GitSource{
			URL: "https://git.example.com/team/project.git", Ref: "release/1.2", CredentialsSecretName: "robot",
		}}}
	},
	"git-source-without-credentials": func(in *Input) {
		in.Class.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
		in.Session.Spec.Workspace = &v1alpha1.Workspace{Source: &v1alpha1.WorkspaceSource{Type: v1alpha1.SourceGit, Git: &v1alpha1.GitSource{
			URL: "https://git.example.com/team/project.git",
		}}}
	},
	"config-map-source": func(in *Input) {
		in.Class.Spec.Model.KeySecretName = "deepseek"
		in.Session.Spec.Workspace = &v1alpha1.Workspace{Source: &v1alpha1.WorkspaceSource{Type: v1alpha1.SourceConfigMap, ConfigMap: &v1alpha1.ConfigMapSource{Name: "inputs"}}}
	},
	"empty-source": func(in *Input) {
		in.Session.Spec.Workspace = &v1alpha1.Workspace{Source: &v1alpha1.WorkspaceSource{Type: v1alpha1.SourceEmpty}}
	},
	"runtime-class":            func(in *Input) { in.Class.Spec.RuntimeClassName = "gvisor" },
	"scheduling":               func(in *Input) { in.Class.Spec.Scheduling = everywhere() },
	"termination-grace-period": func(in *Input) { in.Class.Spec.TerminationGracePeriodSeconds = 90 },
	"environment": func(in *Input) {
		in.Class.Spec.Env = []v1alpha1.Variable{{Name: "PATH", Value: "/opt/go/bin:/usr/bin:/bin"}, {Name: "PRICE", Value: "$5 $(HOME) $$"}, {Name: "CI"}}
		in.Session.Spec.Workspace = &v1alpha1.Workspace{Source: &v1alpha1.WorkspaceSource{Type: v1alpha1.SourceGit, Git: &v1alpha1.GitSource{
			URL: "https://git.example.com/team/project.git",
		}}}
	},
	"writable-root-filesystem": func(in *Input) {
		in.Class.Spec.Security.WritableRootFilesystem = true
		in.Session.Spec.Workspace = &v1alpha1.Workspace{Source: &v1alpha1.WorkspaceSource{Type: v1alpha1.SourceConfigMap, ConfigMap: &v1alpha1.ConfigMapSource{Name: "inputs"}}}
	},
	"writable-root-filesystem-of-a-read-only-class": func(in *Input) {
		in.Class.Spec.Security.WritableRootFilesystem, in.Class.Spec.Ceiling.MaxMode = true, v1alpha1.ModeReadOnly
	},
	"tools-image-of-the-session": func(in *Input) {
		in.Session.Spec.ToolsImage = "registry.example/team/go:1.26"
		in.Session.Spec.Workspace = &v1alpha1.Workspace{Source: &v1alpha1.WorkspaceSource{Type: v1alpha1.SourceConfigMap, ConfigMap: &v1alpha1.ConfigMapSource{Name: "inputs"}}}
	},
	"own-images-users-and-resources": func(in *Input) {
		in.Class.Spec.Images.Agent = "registry.example/agent:patched"
		in.Class.Spec.Security = v1alpha1.Security{AgentUser: new(int64(1001)), ToolsUser: new(int64(1002)), FSGroup: new(int64(1003))}
		in.Class.Spec.Resources = v1alpha1.ClassResources{
			Agent:   v1alpha1.Resources{Requests: list("cpu", "50m", "memory", "64Mi"), Limits: list("memory", "256Mi")},
			ToolsRO: v1alpha1.Resources{Requests: list("cpu", "100m")},
			ToolsRW: v1alpha1.Resources{Limits: list("cpu", "2", "memory", "2Gi", "ephemeral-storage", "4Gi")},
		}
	},
}

func persistent(in *Input) {
	in.Class.Spec.Storage = &v1alpha1.ClassStorage{Storage: v1alpha1.Storage{
		Type: v1alpha1.StoragePersistentVolumeClaim, Size: new(resource.MustParse("5Gi")), StorageClassName: "fast",
	}}
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for p := range slices.Chunk(pairs, 2) {
		l[corev1.ResourceName(p[0])] = resource.MustParse(p[1])
	}
	return l
}

func input(mutate func(*Input)) Input {
	in := Input{
		Session: &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{
			Name: "fix-build", Namespace: "demo", UID: "0b9f6f0e-7d0a-4ae6-8a2f-6f6f1d1d0c11",
		}},
		Class: &v1alpha1.AgentSessionClass{Spec: v1alpha1.AgentSessionClassSpec{
			Images:  v1alpha1.Images{Tools: "agentsession.dev/tools:v0.1.0"},
			Ceiling: v1alpha1.Ceiling{MaxMode: v1alpha1.ModeDangerFullAccess},
		}},
		AgentImage:  "agentsession.dev/agent:v0.1.0",
		Incarnation: "k2p7x9qd",
		CAHash:      strings.Repeat("ab", 32),
	}
	mutate(&in)
	return in
}

func typedPod(t *testing.T, in Input) *corev1.Pod {
	t.Helper()
	pod, err := Typed[corev1.Pod](Pod(in))
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// golden compares with testdata/<name>.yaml.
func golden(t *testing.T, name string, object any) {
	t.Helper()
	got, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run the test with -update, then read the file)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// The pods are as reviewed, and the official checks of the Pod Security Standard
// restricted have nothing against them.
func TestPodsAreAsReviewedAndRestricted(t *testing.T) {
	checks, err := psa.NewEvaluator(psa.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for name, mutate := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(mutate)
			golden(t, name, Pod(in))
			pod := typedPod(t, in)
			for _, r := range checks.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
				if !r.Allowed {
					t.Errorf("not restricted: %s: %s", r.ForbiddenReason, r.ForbiddenDetail)
				}
			}
		})
	}
}

func TestClaimsAreAsReviewed(t *testing.T) {
	golden(t, "claim", Claim(input(persistent)))
	golden(t, "claim-retained", Claim(input(func(in *Input) {
		persistent(in)
		in.Class.Spec.Storage.Retention = v1alpha1.RetentionRetain
	})))
}

// What a session has stays what it has, whatever becomes of its class.
func TestStorageIsTheSessionsThenTheClasss(t *testing.T) {
	gi := func(s string) *resource.Quantity { return new(resource.MustParse(s)) }
	claim, dir := v1alpha1.StoragePersistentVolumeClaim, v1alpha1.StorageEmptyDir
	for name, tc := range map[string]struct {
		class, session *v1alpha1.Storage
		has            v1alpha1.StorageType
		want           v1alpha1.Storage
	}{
		"nobody says anything":               {nil, nil, "", v1alpha1.Storage{Type: dir, Size: gi("1Gi")}},
		"the class says all":                 {&v1alpha1.Storage{Type: claim, Size: gi("5Gi"), StorageClassName: "fast"}, nil, "", v1alpha1.Storage{Type: claim, Size: gi("5Gi"), StorageClassName: "fast"}},
		"the session chooses the type alone": {&v1alpha1.Storage{Type: dir, Size: gi("5Gi")}, &v1alpha1.Storage{Type: claim}, "", v1alpha1.Storage{Type: claim, Size: gi("5Gi")}},
		"the session chooses all":            {&v1alpha1.Storage{Type: dir}, &v1alpha1.Storage{Type: claim, Size: gi("2Gi"), StorageClassName: "slow"}, "", v1alpha1.Storage{Type: claim, Size: gi("2Gi"), StorageClassName: "slow"}},
		"the class changed after the start":  {&v1alpha1.Storage{Type: claim}, nil, dir, v1alpha1.Storage{Type: dir, Size: gi("1Gi")}},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(func(in *Input) {
				if tc.class != nil {
					in.Class.Spec.Storage = &v1alpha1.ClassStorage{Storage: *tc.class}
				}
				in.Session.Spec.Workspace = &v1alpha1.Workspace{Storage: tc.session}
				if tc.has != "" {
					in.Session.Status.Storage = &v1alpha1.StorageStatus{Type: tc.has}
				}
			})
			if diff := cmp.Diff(tc.want, Storage(in.Session, in.Class)); diff != "" {
				t.Errorf("Storage() (-want +got):\n%s", diff)
			}
		})
	}
}

// policies are all shapes that a NetworkPolicy can have, by the name of their golden file.
var policies = map[string]struct {
	egress v1alpha1.Egress
	open   bool
}{
	"network-closed":       {v1alpha1.Egress{ModelCIDRs: []v1alpha1.CIDR{"203.0.113.7/32", "2001:db8::/32"}, OpenCIDRs: []v1alpha1.CIDR{"198.51.100.0/24"}}, false},
	"network-open":         {v1alpha1.Egress{ModelCIDRs: []v1alpha1.CIDR{"203.0.113.7/32", "2001:db8::/32"}, OpenCIDRs: []v1alpha1.CIDR{"198.51.100.0/24"}}, true},
	"network-of-no-name":   {v1alpha1.Egress{ModelCIDRs: []v1alpha1.CIDR{"203.0.113.7/32"}, DNS: &v1alpha1.EgressDNS{Type: v1alpha1.EgressDNSNone}}, true},
	"network-of-own-names": {v1alpha1.Egress{ModelCIDRs: []v1alpha1.CIDR{"203.0.113.7/32"}, DNS: &v1alpha1.EgressDNS{Type: v1alpha1.EgressDNSCIDRs, CIDRs: []v1alpha1.CIDR{"169.254.20.10/32"}}}, false},
}

// The policies are as reviewed, select the session's pod and no other, and have no rule that leaves out whom it is
// about: to Kubernetes that means everybody.
func TestNetworkPoliciesAreAsReviewed(t *testing.T) {
	operator := Operator{Namespace: "agentsession-system", Labels: map[string]string{"app.kubernetes.io/component": "manager"}}
	for name, tc := range policies {
		t.Run(name, func(t *testing.T) {
			in := input(func(in *Input) { in.Class.Spec.Egress = &tc.egress })
			configuration := NetworkPolicy(in, operator, tc.open)
			golden(t, name, configuration)
			policy, err := Typed[networkingv1.NetworkPolicy](configuration)
			if err != nil {
				t.Fatal(err)
			}
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			if err != nil {
				t.Fatal(err)
			}
			successor := in
			successor.Session = in.Session.DeepCopy()
			successor.Session.UID = "1c9f6f0e-7d0a-4ae6-8a2f-6f6f1d1d0c11"
			for who, wanted := range map[*corev1.Pod]bool{typedPod(t, in): true, typedPod(t, successor): false} {
				if selector.Matches(labels.Set(who.Labels)) != wanted {
					t.Errorf("the policy and pod %s: want %t", who.Name, wanted)
				}
			}
			for _, r := range policy.Spec.Ingress {
				if len(r.From) == 0 || len(r.Ports) == 0 {
					t.Errorf("everybody is let in: %+v", r)
				}
			}
			for _, r := range policy.Spec.Egress {
				if len(r.To) == 0 {
					t.Errorf("everything is reached: %+v", r)
				}
			}
		})
	}
}

func TestTheLinkSecretIsAsReviewed(t *testing.T) {
	golden(t, "link-secret", LinkSecret(input(func(*Input) {}), map[string][]byte{
		wire.TLSCertFile: []byte("certificate"), wire.TLSKeyFile: []byte("key"), wire.TLSCAFile: []byte("authority"),
	}))
}

// A golden file that no case writes any more proves nothing.
func TestNoGoldenFileIsOrphaned(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		_, isPolicy := policies[name]
		if _, ok := cases[name]; !ok && !isPolicy && !slices.Contains([]string{"link-secret", "claim", "claim-retained"}, name) {
			t.Errorf("%s belongs to no case: remove it", f)
		}
	}
}

// What the tools may never have, read from the finished pods: the log, a Secret, a
// token, a variable from elsewhere; and the read-only container no writable mount.
func TestToolsContainersAreKeptApart(t *testing.T) {
	for name, mutate := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(mutate)
			pod := typedPod(t, in)
			secrets := map[string]bool{}
			for _, v := range pod.Spec.Volumes {
				secrets[v.Name] = v.Secret != nil
				if v.HostPath != nil || v.Projected != nil {
					t.Errorf("volume %s: only emptyDir, claim and Secret are expected", v.Name)
				}
			}
			for _, c := range pod.Spec.Containers {
				if len(c.EnvFrom) > 0 || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil }) {
					t.Errorf("%s takes variables from elsewhere", c.Name)
				}
				if root := c.SecurityContext.ReadOnlyRootFilesystem; !*root && (c.Name != wire.ToolsRW || !in.Class.Spec.Security.WritableRootFilesystem) {
					t.Errorf("%s can write to its root file system", c.Name)
				}
				for _, m := range c.VolumeMounts {
					if secrets[m.Name] || m.SubPath == "log" || (m.Name == volumeData && m.SubPath != "workspace") {
						t.Errorf("%s mounts %s (subPath %q)", c.Name, m.Name, m.SubPath)
					}
					if c.Name == wire.ToolsRO && !m.ReadOnly {
						t.Errorf("%s can write to %s", c.Name, m.MountPath)
					}
				}
			}
			for _, m := range pod.Spec.InitContainers[0].VolumeMounts {
				if m.Name == volumeData && m.SubPath != "log" || m.Name == volumeSourceKey {
					t.Errorf("the agent mounts %s at %s", m.Name, m.MountPath)
				}
			}
			for _, c := range pod.Spec.InitContainers {
				if !*c.SecurityContext.ReadOnlyRootFilesystem {
					t.Errorf("%s can write to its root file system", c.Name)
				}
			}
			for _, c := range pod.Spec.InitContainers[1:] {
				if c.Name != WorkspaceContainer || c.RestartPolicy != nil {
					t.Errorf("the init container %s does not end before the tools start", c.Name)
				}
				for _, m := range c.VolumeMounts {
					if secrets[m.Name] && m.Name != volumeSourceKey || m.SubPath == "log" || strings.HasPrefix(m.Name, "ctl-") {
						t.Errorf("the fetch mounts %s", m.Name)
					}
				}
			}
		})
	}
}

// The apiserver refuses recursiveReadOnly on a mount that is not readOnly, and
// Enabled is refused by runtimes without the feature.
func TestRecursiveReadOnlyGoesWithReadOnly(t *testing.T) {
	for name, mutate := range cases {
		pod := typedPod(t, input(mutate))
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			for _, m := range c.VolumeMounts {
				r := m.RecursiveReadOnly
				if m.ReadOnly != (r != nil) || (r != nil && *r != corev1.RecursiveReadOnlyIfPossible) {
					t.Errorf("%s: %s: %s: readOnly %t with recursiveReadOnly %v", name, c.Name, m.MountPath, m.ReadOnly, r)
				}
			}
		}
	}
}

func TestNames(t *testing.T) {
	in := input(func(in *Input) { in.Session.Name = strings.Repeat("a", 52) })
	if name := PodName(in.Session); len(name) != 58 || len(validation.IsDNS1123Label(name)) > 0 {
		t.Errorf("PodName() = %q, want a DNS label of 58 characters: it is the pod's host name", name)
	}
	for key, value := range in.labels() {
		if why := validation.IsValidLabelValue(value); len(why) > 0 {
			t.Errorf("label %s=%s: %s", key, value, why)
		}
	}
	successor := in.Session.DeepCopy()
	successor.UID = "1c9f6f0e-7d0a-4ae6-8a2f-6f6f1d1d0c11"
	if PodName(in.Session) == PodName(successor) {
		t.Error("a later session of the same name has the same pod name")
	}
	if LinkSecretName(in.Session, "a") == LinkSecretName(in.Session, "b") {
		t.Error("two incarnations share a link Secret")
	}
}
