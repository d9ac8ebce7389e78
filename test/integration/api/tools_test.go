// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	"github.com/agentsession-dev/operator/internal/tool"
)

func TestToolsThatAreRefusedOrAdmitted(t *testing.T) {
	var all []any
	for _, x := range tool.All() {
		all = append(all, x.Name)
	}
	refusals{
		"every tool that there is": {set("spec.tools", all), ""},
		"some":                     {set("spec.tools", []any{"read", "grep"}), ""},
		"none":                     {set("spec.tools", []any{}), "spec.tools: Invalid value"},
		"one twice":                {set("spec.tools", []any{"read", "read"}), "Duplicate value"},
		"another one":              {set("spec.tools", []any{"web_search"}), `supported values: "read", "write"`},
	}.run(t, class)
}
