// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		tool, in, canonical string
	}{
		"a read":                           {"read", `{"path":"a"}`, `{"path":"a"}`},
		"keys in another order":            {"read", ` {"limit":2, "path":"a<b"}`, `{"path":"a<b","limit":2}`},
		"an empty file":                    {"write", `{"content":"","path":"a"}`, `{"path":"a","content":""}`},
		"a command with a time-out":        {"bash", `{"command":"true","timeout_seconds":600}`, `{"command":"true","timeout_seconds":600}`},
		"control keys":                     {"terminal", `{"input":"\u0003ls\n","action":"send"}`, `{"action":"send","input":"\u0003ls\n"}`},
		"a size alone":                     {"terminal", `{"action":"send","cols":100}`, `{"action":"send","cols":100}`},
		"escapes mean what they stand for": {"bash", `{"command":"\u0065cho"}`, `{"command":"echo"}`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Decode(tc.tool, []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.canonical, string(c.Canonical)); diff != "" {
				t.Errorf("canonical (-want +got):\n%s", diff)
			}
			again, err := Decode(tc.tool, c.Canonical)
			if err != nil || again.Digest != c.Digest {
				t.Errorf("decoding the canonical form gives %v, %v", again.Digest, err)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ tool, in, want string }{
		"an unknown tool":                 {"delete", `{}`, `no tool named "delete"; the tools are read, write, edit, glob, grep, bash, terminal`},
		"an unknown key":                  {"read", `{"path":"a","mode":"w"}`, "mode"},
		"a key given twice":               {"bash", `{"command":"true","command":"rm -rf ."}`, `the key "command" is given twice`},
		"a key in another case":           {"bash", `{"Command":"true"}`, "Command"},
		"the same beside it":              {"bash", `{"command":"true","COMMAND":"false"}`, "COMMAND"},
		"a missing key":                   {"write", `{"path":"a"}`, "content"},
		"a wrong type":                    {"read", `{"path":1}`, "path"},
		"null":                            {"read", `{"path":null}`, "path"},
		"invalid UTF-8":                   {"read", "{\"path\":\"\xff\"}", "not valid UTF-8"},
		"something behind it":             {"read", `{"path":"a"}{}`, "stands behind"},
		"half of it":                      {"read", `{"path":"a"`, "not complete"},
		"nothing":                         {"read", ``, "not complete"},
		"a list":                          {"read", `["a"]`, "one JSON object"},
		"a NUL character":                 {"bash", `{"command":"a\u0000b"}`, "NUL"},
		"an empty command":                {"bash", `{"command":"  "}`, "must not be empty"},
		"a time-out of an hour":           {"bash", `{"command":"a","timeout_seconds":3600}`, "between 1 and 600"},
		"a fraction of a second":          {"bash", `{"command":"a","timeout_seconds":0.5}`, "timeout_seconds"},
		"an expression that is none":      {"grep", `{"pattern":"("}`, "missing closing )"},
		"a pattern that leads out":        {"glob", `{"pattern":"../*"}`, "must not contain .."},
		"an absolute pattern":             {"glob", `{"pattern":"/etc/*"}`, "must be relative"},
		"an edit of nothing":              {"edit", `{"path":"a","old_string":"","new_string":"b"}`, "must not be empty"},
		"an edit to the same":             {"edit", `{"path":"a","old_string":"b","new_string":"b"}`, "are the same"},
		"more, by a tool that only reads": {"read", `{"path":"a","sandbox_permissions":"workspace-write","justification":"b"}`, "sandbox_permissions"},
		"more, than there is":             {"bash", `{"command":"a","sandbox_permissions":"root","justification":"b"}`, "sandbox_permissions"},
		"more, that is less":              {"bash", `{"command":"a","sandbox_permissions":"read-only","justification":"b"}`, "sandbox_permissions"},
		"nothing more":                    {"bash", `{"command":"a","sandbox_permissions":"","justification":"b"}`, "sandbox_permissions"},
		"more, for no reason":             {"write", `{"path":"a","content":"","sandbox_permissions":"workspace-write"}`, "needs a justification"},
		"more, for a blank":               {"write", `{"path":"a","content":"","sandbox_permissions":"workspace-write","justification":" \n"}`, "needs a justification"},
		"more, for a book":                {"bash", `{"command":"a","sandbox_permissions":"workspace-write","justification":"` + strings.Repeat("a", 1001) + `"}`, "at most 1000"},
		"a reason for nothing":            {"edit", `{"path":"a","old_string":"b","new_string":"c","justification":"b"}`, "only taken together"},
		"an action that is none":          {"terminal", `{"action":"kill"}`, "action"},
		"a command to read":               {"terminal", `{"action":"read","command":"ls"}`, "for open alone"},
		"a blank command":                 {"terminal", `{"action":"open","command":" "}`, "must not be blank"},
		"nothing to send":                 {"terminal", `{"action":"send"}`, "input must not be empty"},
		"input to open":                   {"terminal", `{"action":"open","input":"ls"}`, "for send alone"},
		"a size to read":                  {"terminal", `{"action":"read","rows":3}`, "for open and send"},
		"a giant terminal":                {"terminal", `{"action":"open","rows":3000}`, "between 1 and 1000"},
		"a wait of an hour":               {"terminal", `{"action":"read","wait_millis":3600000}`, "between 1 and 60000"},
		"a path for a name":               {"terminal", `{"action":"read","name":"../x"}`, "letters, digits"},
		"too much to type":                {"terminal", `{"action":"send","input":"` + strings.Repeat("a", MaxTerminalInput+1) + `"}`, "at most 65536"},
		"too deep":                        {"read", strings.Repeat(`{"path":`, 20) + "1" + strings.Repeat("}", 20), "nested deeper"},
		"too long":                        {"write", `{"path":"` + strings.Repeat("a", MaxArguments), "at most 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(tc.tool, []byte(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Decode() error = %v, want %q", err, tc.want)
			}
		})
	}
}

// The schemas are in every request: their bytes may only change on purpose.
func TestSchemasArePinned(t *testing.T) {
	const wish = `"sandbox_permissions":{"type":"string","description":"leave this out, unless the result of this exact call said that it may be made once more with it: the sandbox mode that this one call needs","enum":["workspace-write","danger-full-access"]},` +
		`"justification":{"type":"string","description":"only with sandbox_permissions: why this one call needs it, for the person who decides"}`
	want := map[string]string{
		"read": `{"type":"object","properties":{"path":{"type":"string","description":"the file, absolute or relative to the workspace"},` +
			`"offset":{"type":"integer","description":"the first line wanted, counted from 1"},"limit":{"type":"integer","description":"how many lines at most"}},` +
			`"required":["path"],"additionalProperties":false}`,
		"write": `{"type":"object","properties":{"path":{"type":"string","description":"the file, absolute or relative to the workspace"},` +
			`"content":{"type":"string","description":"the whole new content of the file"},` +
			wish + `},"required":["path","content"],"additionalProperties":false}`,
		"edit": `{"type":"object","properties":{"path":{"type":"string","description":"the file, absolute or relative to the workspace"},` +
			`"old_string":{"type":"string","description":"the text to replace, exactly as it stands in the file; it must occur once, unless replace_all is set"},` +
			`"new_string":{"type":"string","description":"the text to put in its place"},` +
			`"replace_all":{"type":"boolean","description":"replace every occurrence"},` +
			wish + `},"required":["path","old_string","new_string"],"additionalProperties":false}`,
		"glob": `{"type":"object","properties":{"pattern":{"type":"string","description":"such as *.go or cmd/**/main.go: * and ? stay within a name, ** stands for any number of directories"},` +
			`"path":{"type":"string","description":"the directory to look in, absolute or relative to the workspace; the workspace if not given"}},` +
			`"required":["pattern"],"additionalProperties":false}`,
		"grep": `{"type":"object","properties":{"pattern":{"type":"string","description":"a regular expression (RE2 syntax) to find within lines"},` +
			`"path":{"type":"string","description":"the file or directory to look in, absolute or relative to the workspace; the workspace if not given"},` +
			`"glob":{"type":"string","description":"look only in files whose name matches, such as *.go"},` +
			`"ignore_case":{"type":"boolean","description":"take upper and lower case as the same"}},"required":["pattern"],"additionalProperties":false}`,
		"bash": `{"type":"object","properties":{"command":{"type":"string","description":"the command line for bash -c"},` +
			`"cwd":{"type":"string","description":"the directory to run it in, absolute or relative to the workspace; the workspace if not given"},` +
			`"timeout_seconds":{"type":"integer","description":"when to stop it, in seconds; 120 if not given, 600 at most"},` +
			wish + `},` +
			`"required":["command"],"additionalProperties":false}`,
		"terminal": `{"type":"object","properties":{"action":{"type":"string","description":"open starts a command in a new terminal; send types into it; read waits for more output; close ends it and everything in it","enum":["open","send","read","close"]},` +
			`"name":{"type":"string","description":"which terminal, by a name of your choice; main if not given"},` +
			`"command":{"type":"string","description":"for open: the command line for bash -c; an interactive shell if not given"},` +
			`"cwd":{"type":"string","description":"for open: the directory to start in, absolute or relative to the workspace; the workspace if not given"},` +
			`"input":{"type":"string","description":"for send: what to type, exactly as given. A line ends with a newline character; control keys are characters too: U+0003 is Ctrl-C, U+0004 is Ctrl-D, U+001B is Escape"},` +
			`"rows":{"type":"integer","description":"for open and send: the height; 24 if never given"},` +
			`"cols":{"type":"integer","description":"for open and send: the width; 80 if never given"},` +
			`"wait_millis":{"type":"integer","description":"the longest time to wait for output, in milliseconds; 2000 if not given, 60000 at most"},` +
			`"idle_millis":{"type":"integer","description":"answer earlier when something was written and then nothing for that long, in milliseconds; 300 if not given"}},` +
			`"required":["action"],"additionalProperties":false}`,
	}
	got := map[string]string{}
	for _, tool := range All() {
		got[tool.Name] = string(tool.Schema)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schemas (-want +got):\n%s", diff)
	}
}

// Only what an encoder would write comes through: nothing is read in two ways.
func TestCanonicalRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"white space":           `{"path": "a"}`,
		"another order":         `{"limit":2,"path":"a"}`,
		"an unknown key":        `{"path":"a","x":1}`,
		"a key given twice":     `{"path":"a","path":"b"}`,
		"a key in another case": `{"Path":"a"}`,
		"a default spelt out":   `{"path":"a","limit":0}`,
		"something behind it":   `{"path":"a"} `,
		"a bad value":           `{"path":"a","limit":-1}`,
		"nothing":               ``,
		"a reason for nothing":  `{"path":"a","justification":"b"}`,
	} {
		if c, err := Canonical("read", []byte(in)); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if _, err := Canonical("read", []byte(`{"path":"a","limit":2}`)); err != nil {
		t.Error(err)
	}
}

func TestTimeoutDefaults(t *testing.T) {
	if got := (&Bash{}).Timeout(); got != 120*time.Second {
		t.Errorf("Timeout() = %v", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("bash", []byte(`{"command":"true"}`))
	f.Add("write", []byte(`{"path":"a","content":"\ud800"}`))
	f.Add("edit", []byte(`{"path":"a","old_string":"b","new_string":"c","replace_all":true}`))
	f.Add("glob", []byte(`{"pattern":"**/*.go","path":"a"}`))
	f.Add("grep", []byte(`{"pattern":"a|b","path":".","glob":"*.go"}`))
	f.Add("read", []byte(`{"path":"a","offset":1e3,"limit":2}`))
	f.Add("terminal", []byte(`{"action":"open","command":"top"}`))
	f.Add("bash", []byte(`{"command":"a","command":"b"}`))
	f.Add("bash", []byte(`{"command":{"a":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}}`))
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		c, err := Decode(name, raw)
		if err != nil {
			return
		}
		again, err := Decode(name, c.Canonical)
		if err != nil || string(again.Canonical) != string(c.Canonical) {
			t.Fatalf("the canonical form %q of %q decodes to %q, %v", c.Canonical, raw, again.Canonical, err)
		}
		if taken, err := Canonical(name, c.Canonical); err != nil || taken.Digest != c.Digest {
			t.Fatalf("the canonical form %q of %q is not taken as one: %v", c.Canonical, raw, err)
		}
		if _, err := Canonical(name, raw); err == nil && string(raw) != string(c.Canonical) {
			t.Fatalf("%q is taken as canonical, which is %q", raw, c.Canonical)
		}
	})
}
