// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// store is what an apiserver keeps, by its rules for what the controller uses of it:
// one resource version for all, generations that count changes of the spec, a status of its
// own, merge patches with a lock, preconditions, and pods and claims that go in two steps.
type store struct {
	scheme  *runtime.Scheme
	now     func() time.Time
	objects map[objectKey]client.Object
	changes []changed // all that there were, in order
	version int
}

type objectKey struct {
	kind string
	types.NamespacedName
}

// changed is one change of one object, as a watch tells it.
type changed struct {
	key         objectKey
	before, now client.Object // nil before its creation and after its end
}

func newStore(now func() time.Time) *store {
	s := &store{scheme: runtime.NewScheme(), now: now, objects: map[objectKey]client.Object{}, version: 100}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s.scheme); err != nil {
			panic(err)
		}
	}
	return s
}

func (s *store) key(o client.Object) objectKey {
	gvk, err := apiutil.GVKForObject(o, s.scheme)
	if err != nil {
		panic(err)
	}
	return objectKey{gvk.Kind, client.ObjectKeyFromObject(o)}
}

// put keeps an object as changed, unless nothing is.
func (s *store) put(k objectKey, o client.Object) {
	before := s.objects[k]
	if before != nil && equality.Semantic.DeepEqual(before, o) {
		return
	}
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[k] = o
	s.changes = append(s.changes, changed{k, before, o})
}

func (s *store) drop(k objectKey) {
	if o := s.objects[k]; o != nil {
		s.version++
		delete(s.objects, k)
		s.changes = append(s.changes, changed{k, o, nil})
	}
}

func (s *store) create(o client.Object) error {
	k := s.key(o)
	if s.objects[k] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: k.kind}, k.Name)
	}
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", strings.ToLower(k.kind), s.version)))
	o.SetCreationTimestamp(metav1.NewTime(s.now()).Rfc3339Copy())
	o.SetGeneration(1)
	kept := o.DeepCopyObject().(client.Object)
	if session, ok := kept.(*v1alpha1.AgentSession); ok {
		session.Status = v1alpha1.AgentSessionStatus{ObservedGeneration: -1}
	}
	s.put(k, kept)
	assign(o, kept)
	return nil
}

// edit changes an object as another client would.
func edit[T client.Object](s *store, o T, change func(T)) {
	k := s.key(o)
	next := s.objects[k].DeepCopyObject().(T)
	change(next)
	if before := s.objects[k]; !equality.Semantic.DeepEqual(field(before, "Spec"), field(next, "Spec")) {
		next.SetGeneration(before.GetGeneration() + 1)
	}
	s.put(k, next)
}

func field(o client.Object, name string) any {
	if f := reflect.ValueOf(o).Elem().FieldByName(name); f.IsValid() {
		return f.Interface()
	}
	return nil
}

// remove deletes what a client asks to have deleted. A pod ends first, and a claim stays
// as long as a pod uses it.
func (s *store) remove(k objectKey) {
	o := s.objects[k]
	_, pod := o.(*corev1.Pod)
	_, claim := o.(*corev1.PersistentVolumeClaim)
	if !pod && !claim {
		s.drop(k)
		return
	}
	if o.GetDeletionTimestamp() == nil {
		next := o.DeepCopyObject().(client.Object)
		next.SetDeletionTimestamp(new(metav1.NewTime(s.now()).Rfc3339Copy()))
		s.put(k, next)
	}
}

// merged is an object after a merge patch; of a status patch only the status counts, of any
// other everything else.
func (s *store) merged(k objectKey, data []byte, status bool) (client.Object, error) {
	have := s.objects[k]
	if have == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: k.kind}, k.Name)
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if m, ok := patch["metadata"].(map[string]any); ok && m["resourceVersion"] != nil {
		if m["resourceVersion"] != have.GetResourceVersion() {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: k.kind}, k.Name, fmt.Errorf("it was changed"))
		}
	}
	if status {
		patch = map[string]any{"status": patch["status"]}
	} else {
		delete(patch, "status")
	}
	encoded, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	var whole map[string]any
	if err := json.Unmarshal(encoded, &whole); err != nil {
		return nil, err
	}
	merge(whole, patch)
	if encoded, err = json.Marshal(whole); err != nil {
		return nil, err
	}
	next := reflect.New(reflect.TypeOf(have).Elem()).Interface().(client.Object)
	return next, json.Unmarshal(encoded, next)
}

func merge(into, patch map[string]any) {
	for name, value := range patch {
		inner, object := value.(map[string]any)
		have, same := into[name].(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case object && same:
			merge(have, inner)
		case object:
			fresh := map[string]any{}
			merge(fresh, inner)
			into[name] = fresh
		default:
			into[name] = value
		}
	}
}

// inOrder are the keys in an order that is always the same.
func inOrder(objects map[objectKey]client.Object) []objectKey {
	return slices.SortedFunc(maps.Keys(objects), func(a, b objectKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func assign(to, from client.Object) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

// api is the controller's client: it writes to the store and reads from where it is told.
type api struct {
	client.Client // nil: what is not below is not used
	*store
	from  func(objectKey) client.Object
	index map[string]client.IndexerFunc
	all   func() map[objectKey]client.Object
	wrote func(verb string, k objectKey, o client.Object) error // before; an error is a write that did not happen
	after func(verb string, k objectKey, before, now client.Object) error
}

func (a *api) Get(_ context.Context, name types.NamespacedName, o client.Object, _ ...client.GetOption) error {
	o.SetName(name.Name)
	o.SetNamespace(name.Namespace)
	k := a.key(o)
	found := a.from(k)
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: k.kind}, name.Name)
	}
	assign(o, found)
	return nil
}

func (a *api) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	gvk, err := apiutil.GVKForObject(list, a.scheme)
	if err != nil {
		return err
	}
	kind := strings.TrimSuffix(gvk.Kind, "List")
	var found []runtime.Object
	all := a.all()
	for _, k := range inOrder(all) {
		x := all[k]
		if k.kind != kind || o.Namespace != "" && k.Namespace != o.Namespace {
			continue
		}
		if o.FieldSelector != nil {
			r := o.FieldSelector.Requirements()[0]
			values := a.index[kind+"/"+r.Field](x)
			if len(values) != 1 || values[0] != r.Value {
				continue
			}
		}
		found = append(found, x.DeepCopyObject())
	}
	return meta.SetList(list, found)
}

func (a *api) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	k := a.key(o)
	if err := a.wrote("create", k, o); err != nil {
		return err
	}
	if err := a.create(o); err != nil {
		return err
	}
	return a.after("create", k, nil, a.objects[k])
}

func (a *api) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	var d client.DeleteOptions
	d.ApplyOptions(options)
	k := a.key(o)
	if err := a.wrote("delete", k, o); err != nil {
		return err
	}
	have := a.objects[k]
	if have == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: k.kind}, k.Name)
	}
	if p := d.Preconditions; p != nil && (p.UID != nil && *p.UID != have.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != have.GetResourceVersion()) {
		return apierrors.NewConflict(schema.GroupResource{Resource: k.kind}, k.Name, fmt.Errorf("it is another one"))
	}
	a.remove(k)
	return a.after("delete", k, have, nil)
}

func (a *api) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	return a.patch("patch", o, p)
}

func (a *api) patch(verb string, o client.Object, p client.Patch) error {
	if p.Type() != types.MergePatchType {
		return fmt.Errorf("patches of type %s are not used", p.Type())
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	k := a.key(o)
	if err := a.wrote(verb, k, o); err != nil {
		return err
	}
	before := a.objects[k]
	next, err := a.merged(k, data, verb == "status")
	if err != nil {
		return err
	}
	a.put(k, next)
	assign(o, a.objects[k])
	return a.after(verb, k, before, a.objects[k])
}

// Apply takes over what is given of an object that is there; that is all that is used of it.
func (a *api) Apply(_ context.Context, configuration runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	data, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	var n networkingv1.NetworkPolicy
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	k := a.key(&n)
	if err := a.wrote("apply", k, &n); err != nil {
		return err
	}
	before := a.objects[k]
	if before == nil || before.GetUID() != n.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: k.kind}, k.Name, fmt.Errorf("it is another one"))
	}
	next := before.DeepCopyObject().(*networkingv1.NetworkPolicy)
	next.Spec = n.Spec
	maps.Copy(next.Labels, n.Labels)
	a.put(k, next)
	return a.after("apply", k, before, a.objects[k])
}

func (a *api) Status() client.SubResourceWriter { return statusAPI{api: a} }

type statusAPI struct {
	client.SubResourceWriter
	api *api
}

func (s statusAPI) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.api.patch("status", o, p)
}
