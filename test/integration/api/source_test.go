// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"
)

const sourceSession = `
apiVersion: agentsession.dev/v1alpha1
kind: AgentSession
metadata: {namespace: default}
spec:
  workspace:
    source:
      type: Git
      git: {url: "https://git.example.com/team/project.git"}
`

func TestSourcesThatAreRefusedOrAdmitted(t *testing.T) {
	const (
		gitRule   = "git belongs to type Git and to no other"
		filesRule = "configMap belongs to type ConfigMap and to no other"
		urlRule   = "url must begin with https:// (or http://) and have a host, without user, query and fragment"
		plainRule = "url must begin with https:// where credentialsSecretName is set"
		refRule   = "ref is no name that git allows for a branch or tag"
		git       = "spec.workspace.source.git"
		url       = git + ".url"
		ref       = git + ".ref"
	)
	source := func(o object) edit { return set("spec.workspace.source", o) }
	refusals{
		"a repository":                      {both(), ""},
		"with a ref and credentials":        {both(set(ref, "release/1.2"), set(git+".credentialsSecretName", "robot")), ""},
		"nothing":                           {source(object{"type": "Empty"}), ""},
		"a ConfigMap":                       {source(object{"type": "ConfigMap", "configMap": object{"name": "inputs"}}), ""},
		"without a type":                    {unset("spec.workspace.source.type"), "spec.workspace.source.type: Required value"},
		"another type":                      {source(object{"type": "S3"}), `supported values: "Empty", "Git", "ConfigMap"`},
		"Git without a repository":          {source(object{"type": "Git"}), gitRule},
		"Git with a ConfigMap":              {set("spec.workspace.source.configMap", object{"name": "inputs"}), filesRule},
		"a ConfigMap with a repository":     {set("spec.workspace.source.type", "ConfigMap"), gitRule},
		"a ConfigMap without one":           {source(object{"type": "ConfigMap"}), filesRule},
		"nothing, with a repository":        {set("spec.workspace.source.type", "Empty"), gitRule},
		"a ConfigMap without a name":        {source(object{"type": "ConfigMap", "configMap": object{}}), "configMap.name: Required value"},
		"a ConfigMap with no name at all":   {source(object{"type": "ConfigMap", "configMap": object{"name": "In_puts"}}), "configMap.name: Invalid value"},
		"a repository without a URL":        {unset(url), "git.url: Required value"},
		"a URL with a port":                 {set(url, "https://git.example.com:8443/a/b.git"), ""},
		"a URL of an address":               {set(url, "https://[fd00::1]:8443/a"), ""},
		"plain http":                        {set(url, "http://git.svc/a.git"), ""},
		"plain http with credentials":       {both(set(url, "http://git.svc/a.git"), set(git+".credentialsSecretName", "robot")), plainRule},
		"ssh":                               {set(url, "ssh://git.example.com/a.git"), urlRule},
		"the short form of ssh":             {set(url, "git@git.example.com:a.git"), urlRule},
		"a file":                            {set(url, "file:///etc"), urlRule},
		"a transport that is a command":     {set(url, "ext::sh -c id"), urlRule},
		"a URL that is an option":           {set(url, "--upload-pack=id"), urlRule},
		"a URL with a user":                 {set(url, "https://me:secret@git.example.com/a.git"), urlRule},
		"a URL with a query":                {set(url, "https://git.example.com/a.git?x=y"), urlRule},
		"a URL with a fragment":             {set(url, "https://git.example.com/a.git#x"), urlRule},
		"a URL that is a command":           {set(url, "https://git.example.com/$(id)"), urlRule},
		"a host that is a command":          {set(url, "https://$(id)/a"), urlRule},
		"a URL with a blank":                {set(url, "https://git.example.com/a b"), urlRule},
		"a URL without a host":              {set(url, "https:///a"), urlRule},
		"a URL beyond limits":               {set(url, "https://git.example.com/"+strings.Repeat("a", 2048)), "git.url: Too long"},
		"a commit":                          {set(ref, strings.Repeat("0a", 20)), ""},
		"a full ref":                        {set(ref, "refs/pull/1/head"), ""},
		"a ref that is an option":           {set(ref, "--orphan"), "git.ref: Invalid value"},
		"a ref with a blank":                {set(ref, "a b"), "git.ref: Invalid value"},
		"a ref of two dots":                 {set(ref, "a..b"), refRule},
		"a ref of a reflog":                 {set(ref, "main@{1}"), "git.ref: Invalid value"},
		"a ref that ends in a slash":        {set(ref, "a/"), refRule},
		"a ref that is a lock":              {set(ref, "a.lock"), refRule},
		"a ref beyond limits":               {set(ref, strings.Repeat("a", 256)), "git.ref: Too long"},
		"an empty ref":                      {set(ref, ""), "git.ref: Invalid value"},
		"credentials with no Secret's name": {set(git+".credentialsSecretName", "Robot Key"), "git.credentialsSecretName: Invalid value"},
		"a depth":                           {set(git+".depth", int64(1)), `unknown field "spec.workspace.source.git.depth"`},
	}.run(t, sourceSession)
	const fixed = "workspace cannot be added, changed or removed later"
	refusals{
		"another ref":       {set(ref, "main"), fixed},
		"another URL":       {set(url, "https://git.example.com/other.git"), fixed},
		"the source, gone":  {unset("spec.workspace.source"), fixed},
		"credentials added": {set(git+".credentialsSecretName", "robot"), fixed},
	}.runUpdates(t, sourceSession)
	refusals{
		"a source added": {set("spec.workspace", object{"source": object{"type": "Empty"}}), fixed},
	}.runUpdates(t, session)
}
