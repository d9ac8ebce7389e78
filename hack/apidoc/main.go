// SPDX-License-Identifier: Apache-2.0

// Command apidoc writes the reference of the API, docs/api.md, from the generated
// CRDs. What it says of a field is the field's own description; it adds only what
// the schema knows: type, default, values, limits and rules.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/agentsession-dev/operator/config"
)

const preface = "# API reference\n\n" +
	"Generated from the types by `make generate`; `kubectl explain` says the same. The apiserver checks all of it when an object is\n" +
	"written, and refuses with the words in italics. A field that is not listed here does not exist: `kubectl apply` refuses it, `kubectl patch` only warns.\n"

func main() {
	out := flag.String("out", "docs/api.md", "file to write")
	flag.Parse()
	text, err := reference()
	if err == nil {
		err = os.WriteFile(*out, []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

func reference() (string, error) {
	crds, err := read()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(preface)
	for _, crd := range crds {
		kind(&b, crd)
	}
	return b.String(), nil
}

func read() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds, err := config.Definitions()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(crds, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return cmp.Compare(a.Spec.Names.Kind, b.Spec.Names.Kind)
	})
	return crds, nil
}

func kind(b *strings.Builder, crd *apiextensionsv1.CustomResourceDefinition) {
	names, version := crd.Spec.Names, crd.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema
	scope := "in a namespace"
	if crd.Spec.Scope == apiextensionsv1.ClusterScoped {
		scope = "for the whole cluster"
	}
	fmt.Fprintf(b, "\n## %s\n\n`%s/%s`, %s; short name `%s`.\n\n%s\n",
		names.Kind, crd.Spec.Group, version.Name, scope, strings.Join(names.ShortNames, "`, `"), flat(schema.Description))
	rules(b, *schema)
	for _, part := range []string{"spec", "status"} {
		if p, ok := schema.Properties[part]; ok {
			fmt.Fprintf(b, "\n### %s.%s\n\n%s\n", names.Kind, part, flat(p.Description))
			rules(b, p)
			b.WriteString("\n| field | type | what it is |\n|---|---|---|\n")
			fields(b, "", p)
		}
	}
}

// rules lists what is checked across the fields of an object.
func rules(b *strings.Builder, s apiextensionsv1.JSONSchemaProps) {
	for i, r := range s.XValidations {
		if i == 0 {
			b.WriteString("\nWhat is refused, and the words for it:\n\n")
		}
		fmt.Fprintf(b, "- *%s*\n", r.Message)
	}
}

// fields writes a row for each field below s, depth first.
func fields(b *strings.Builder, prefix string, s apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		path := prefix + name
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, typeOf(p), cell(describe(p, slices.Contains(s.Required, name))))
		if name == "conditions" {
			continue // the same five fields in every API of Kubernetes
		}
		fields(b, path+".", p)
		if p.Items != nil && p.Items.Schema != nil {
			fields(b, path+"[].", *p.Items.Schema)
		}
	}
}

func typeOf(p apiextensionsv1.JSONSchemaProps) string {
	switch {
	case p.XIntOrString:
		return "quantity"
	case p.Format == "date-time":
		return "time"
	case p.Type == "array" && p.Items != nil && p.Items.Schema != nil:
		return "list of " + typeOf(*p.Items.Schema)
	case p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil:
		return "map to " + typeOf(*p.AdditionalProperties.Schema)
	}
	return p.Type
}

// describe joins a field's description with what its schema says beyond it.
func describe(p apiextensionsv1.JSONSchemaProps, required bool) string {
	parts := []string{flat(p.Description)}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if required {
		parts[0] = "**Required.** " + parts[0]
	}
	if len(p.Enum) > 0 {
		var values []string
		for _, v := range p.Enum {
			values = append(values, "`"+strings.Trim(string(v.Raw), `"`)+"`")
		}
		add("One of %s.", strings.Join(values, ", "))
	}
	if p.MaxLength != nil {
		add("At most %d characters.", *p.MaxLength)
	}
	if p.MaxItems != nil {
		add("At most %d items.", *p.MaxItems)
	}
	if p.Minimum != nil && p.Maximum != nil {
		add("From %.0f to %.0f.", *p.Minimum, *p.Maximum)
	}
	for _, r := range p.XValidations {
		add("*%s.*", strings.TrimSuffix(r.Message, "."))
	}
	return strings.Join(parts, " ")
}

func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
