// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"os"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// argoScript is the health check for Argo CD as docs/operation.md gives it.
var argoScript = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("../../../docs/operation.md")
	_, rest, _ := strings.Cut(string(b), "resource.customizations.health.agentsession.dev_AgentSession: |\n")
	script, _, _ := strings.Cut(rest, "\n\n")
	return script, err
})

// argo is what Argo CD makes of an object: it runs the script as Argo CD does, in Lua, with the object as obj.
func (b *bench) argo(u *unstructured.Unstructured) (status, message string) {
	b.t.Helper()
	script, err := argoScript()
	if err != nil || script == "" {
		b.t.Fatalf("docs/operation.md has no script for Argo CD: %v", err)
	}
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", luaValue(l, u.Object))
	if err := l.DoString(script); err != nil {
		b.t.Fatalf("running the script for Argo CD: %v", err)
	}
	health, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		b.t.Fatalf("the script for Argo CD returns %v, want a table", l.Get(-1))
	}
	return lua.LVAsString(health.RawGetString("status")), lua.LVAsString(health.RawGetString("message"))
}

func luaValue(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case []any:
		t := l.NewTable()
		for _, e := range v {
			t.Append(luaValue(l, e))
		}
		return t
	case map[string]any:
		t := l.NewTable()
		for k, e := range v {
			t.RawSetString(k, luaValue(l, e))
		}
		return t
	}
	return lua.LNil
}
