// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"testing"
)

const rangeRule = "this is no range of addresses in CIDR notation: write the network's address and the length of its prefix"

func egressOf(cidrs ...any) edit { return set("spec.egress", object{"modelCIDRs": cidrs}) }

func ranges(n int) []any {
	var l []any
	for i := range n {
		l = append(l, fmt.Sprintf("10.0.%d.0/24", i))
	}
	return l
}

func TestEgressThatIsRefusedOrAdmitted(t *testing.T) {
	model, dns := egressOf("203.0.113.7/32"), func(o object) edit { return set("spec.egress.dns", o) }
	refusals{
		"egress":                    {egressOf("203.0.113.0/24", "2001:db8::/32"), ""},
		"an open network":           {both(model, set("spec.egress.openCIDRs", []any{"0.0.0.0/0", "::/0"})), ""},
		"dns of the cluster":        {both(model, dns(object{"type": "Cluster"})), ""},
		"dns at an address":         {both(model, dns(object{"type": "CIDRs", "cidrs": []any{"169.254.20.10/32"}})), ""},
		"no dns":                    {both(model, dns(object{"type": "None"})), ""},
		"egress to no model":        {set("spec.egress", object{"openCIDRs": []any{"0.0.0.0/0"}}), "spec.egress.modelCIDRs: Required value"},
		"egress to nothing":         {set("spec.egress", object{"modelCIDRs": []any{}}), "spec.egress.modelCIDRs: Invalid value"},
		"egress to an address":      {egressOf("203.0.113.7"), rangeRule},
		"egress to a name":          {egressOf("api.example.com"), rangeRule},
		"egress beside a network":   {egressOf("203.0.113.7/24"), rangeRule},
		"egress to one range twice": {egressOf("203.0.113.0/24", "203.0.113.0/24"), "Duplicate value"},
		"too many ranges":           {egressOf(ranges(65)...), "spec.egress.modelCIDRs: Too many"},
		"dns at no address":         {both(model, dns(object{"type": "CIDRs"})), "cidrs goes with type CIDRs"},
		"cluster dns elsewhere":     {both(model, dns(object{"type": "Cluster", "cidrs": []any{"203.0.113.7/32"}})), "cidrs goes with type CIDRs"},
		"dns beside a network":      {both(model, dns(object{"type": "CIDRs", "cidrs": []any{"203.0.113.7/24"}})), rangeRule},
		"another dns":               {both(model, dns(object{"type": "Node"})), `supported values: "Cluster", "CIDRs", "None"`},
	}.run(t, class)
}
