// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// everywhere is a scheduling that says all that one can say.
func everywhere() v1alpha1.Scheduling {
	runners := &v1alpha1.Selector{
		MatchLabels:      map[string]v1alpha1.LabelValue{"app.kubernetes.io/component": "runner"},
		MatchExpressions: []v1alpha1.SelectorRequirement{{Key: "team", Operator: "NotIn", Values: []v1alpha1.LabelValue{"a", "b"}}},
	}
	term := v1alpha1.PodTerm{LabelSelector: runners, TopologyKey: "kubernetes.io/hostname", NamespaceSelector: &v1alpha1.Selector{}}
	near := &v1alpha1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  []v1alpha1.PodTerm{{LabelSelector: &v1alpha1.Selector{}, TopologyKey: "topology.kubernetes.io/zone", NamespaceSelector: runners}},
		PreferredDuringSchedulingIgnoredDuringExecution: []v1alpha1.PreferredPodTerm{{Weight: 10, PodAffinityTerm: term}},
	}
	arm := v1alpha1.NodeTerm{MatchExpressions: []v1alpha1.NodeRequirement{
		{Key: "kubernetes.io/arch", Operator: "In", Values: []v1alpha1.LabelValue{"arm64"}}, {Key: "cores", Operator: "Gt", Values: []v1alpha1.LabelValue{"7"}},
	}}
	return v1alpha1.Scheduling{
		NodeSelector: map[string]v1alpha1.LabelValue{"agents": "", "kubernetes.io/os": "linux"},
		Tolerations: []v1alpha1.Toleration{
			{Key: "agents", Operator: "Equal", Value: "only", Effect: "NoExecute", TolerationSeconds: new(int64(60))},
			{Operator: "Exists", Effect: "NoSchedule"},
		},
		Affinity: &v1alpha1.Affinity{
			NodeAffinity: &v1alpha1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  &v1alpha1.NodeTerms{NodeSelectorTerms: []v1alpha1.NodeTerm{arm}},
				PreferredDuringSchedulingIgnoredDuringExecution: []v1alpha1.PreferredNodeTerm{{Weight: 1, Preference: arm}},
			},
			PodAffinity:     near,
			PodAntiAffinity: near,
		},
		PriorityClassName: "batch",
	}
}

// A field that a pod has under another name, or not at all, would say nothing: the pod says
// what the class says, word for word.
func TestAPodIsScheduledAsTheClassSays(t *testing.T) {
	s := everywhere()
	unset(t, reflect.ValueOf(s), "scheduling")
	pod := typedPod(t, input(func(in *Input) { in.Class.Spec.Scheduling = s }))
	got := struct {
		NodeSelector      map[string]string   `json:"nodeSelector"`
		Tolerations       []corev1.Toleration `json:"tolerations"`
		Affinity          *corev1.Affinity    `json:"affinity"`
		PriorityClassName string              `json:"priorityClassName"`
	}{pod.Spec.NodeSelector, pod.Spec.Tolerations, pod.Spec.Affinity, pod.Spec.PriorityClassName}
	if diff := cmp.Diff(tree(t, s), tree(t, got)); diff != "" {
		t.Errorf("class and pod (-class +pod):\n%s", diff)
	}
}

// unset tells of fields that the test's own value does not set.
func unset(t *testing.T, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			unset(t, v.Elem(), path)
		}
	case reflect.Slice:
		set := map[string]bool{}
		for i := range v.Len() {
			for j := range v.Index(i).NumField() {
				set[v.Index(i).Type().Field(j).Name] = set[v.Index(i).Type().Field(j).Name] || !v.Index(i).Field(j).IsZero()
			}
		}
		for name, ok := range set {
			if !ok {
				t.Errorf("%s[].%s is set nowhere in this test", path, name)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := path + "." + v.Type().Field(i).Name
			if v.Field(i).IsZero() {
				t.Errorf("%s is not set in this test", name)
			}
			unset(t, v.Field(i), name)
		}
	default:
	}
}

func tree(t *testing.T, v any) (tree any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
