// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAptsAnswerIsRead(t *testing.T) {
	out := "NOTE: something\n" +
		"'http://deb.example/pool/u.deb' util-linux_2.38.1-5+deb12u3_amd64.deb 1177276 SHA256:bb\n" +
		"'http://deb.example/pool/a.deb' acl_1%3a2.3.1-3_amd64.deb 61244 SHA256:aa\n"
	got, err := parseURIs([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	want := []Deb{{"acl_1%3a2.3.1-3_amd64.deb", "SHA256:aa"}, {"util-linux_2.38.1-5+deb12u3_amd64.deb", "SHA256:bb"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parseURIs() (-want +got):\n%s", diff)
	}
	spec, err := got[0].spec()
	if diff := cmp.Diff("acl=1:2.3.1-3", spec); diff != "" || err != nil {
		t.Errorf("spec() = %v (-want +got):\n%s", err, diff)
	}
}

func TestAnAnswerWithoutPackagesIsAnError(t *testing.T) {
	for name, out := range map[string]string{"nothing": "", "only notes": "Reading lists\n", "a cut line": "'http://x' y\n"} {
		t.Run(name, func(t *testing.T) {
			if got, err := parseURIs([]byte(out)); err == nil {
				t.Errorf("parseURIs() = %v, want an error", got)
			}
		})
	}
}

func TestTheKeyNamesVersionsChecksumsAndRecipe(t *testing.T) {
	base := []Deb{{"a_1_amd64.deb", "SHA256:aa"}}
	keys := []string{
		Key("1", base),
		Key("2", base),
		Key("1", []Deb{{"a_2_amd64.deb", "SHA256:aa"}}),
		Key("1", []Deb{{"a_1_amd64.deb", "SHA256:bb"}}),
	}
	slices.Sort(keys)
	if got := len(slices.Compact(keys)); got != 4 {
		t.Errorf("4 different sets gave %d keys", got)
	}
	if Key("1", base) != Key("1", slices.Clone(base)) {
		t.Error("equal sets gave different keys")
	}
}

func TestDocumentationIsLeftOutAndLicencesStay(t *testing.T) {
	for name, want := range map[string]bool{
		"usr/bin/git":                   true,
		"usr/share/doc/git/copyright":   true,
		"usr/share/doc/git/README":      false,
		"usr/share/man/man1/git.1.gz":   false,
		"usr/share/locale/de/x.mo":      false,
		"usr/share/ca-certificates/x":   true,
		"usr/share/doc-base/git.config": true,
	} {
		if got := wanted(name, false); got != want {
			t.Errorf("wanted(%q) = %v, want %v", name, got, want)
		}
	}
}

// Two real packages, made with dpkg-deb, become a root file system.
func TestPackagesBecomeARoot(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("not a Debian machine: dpkg-deb is missing")
	}
	dir := t.TempDir()
	debs := []Deb{
		makeDeb(t, dir, "ca-certificates", map[string]string{
			"usr/share/ca-certificates/mozilla/b.crt": "PEM B\n",
			"usr/share/ca-certificates/mozilla/a.crt": "PEM A",
		}),
		makeDeb(t, dir, "mawk", map[string]string{
			"bin/mawk": "#!awk", "usr/share/doc/mawk/copyright": "GPL", "usr/share/doc/mawk/NEWS": "new",
		}),
	}
	root, err := Root(t.Context(), dir, debs)
	if err != nil {
		t.Fatal(err)
	}
	bundle, _ := root.Content(Bundle)
	if diff := cmp.Diff("PEM A\nPEM B\n", string(bundle)); diff != "" {
		t.Errorf("bundle (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{
		"usr/bin/mawk": true, "usr/bin/awk": true, "bin/sh": true, "etc/passwd": true, "workspace": true, "usr/bin/which": false,
		"usr/share/doc/mawk/copyright": true, "usr/share/doc/mawk/NEWS": false,
	} {
		if got := root.Has(name); got != want {
			t.Errorf("Has(%q) = %v, want %v", name, got, want)
		}
	}
	status, _ := root.Content("var/lib/dpkg/status")
	want := "Package: ca-certificates\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n" +
		"Maintainer: A <a@example.com>\nDescription: x\n\n" +
		"Package: mawk\nStatus: install ok installed\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: x\n\n"
	if diff := cmp.Diff(want, string(status)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestABrokenPackageIsNamed(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("not a Debian machine: dpkg-deb is missing")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad_1_all.deb"), []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Root(t.Context(), dir, []Deb{{File: "bad_1_all.deb"}}); err == nil {
		t.Error("Root() took a file that is no package")
	}
}

func makeDeb(t *testing.T, dir, pkg string, files map[string]string) Deb {
	t.Helper()
	src := t.TempDir()
	files["DEBIAN/control"] = "Package: " + pkg + "\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: x\n"
	for name, content := range files {
		file := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := Deb{File: pkg + "_1_all.deb"}
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--build", src, filepath.Join(dir, d.File)).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v: %s", err, out)
	}
	return d
}
