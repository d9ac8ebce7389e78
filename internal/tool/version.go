// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// AnyVersion asks a file tool to tell the version of its file, whichever that is.
const AnyVersion = "any"

// versionMark stands between what a file tool says and the version of its file. The tools say
// nothing that has a zero byte in it.
const versionMark = "\x00version "

// VersionOf is the version of a file with this content.
func VersionOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// WithVersion is what a file tool writes: its text, and the version of its file.
func WithVersion(text, version string) string { return text + versionMark + version }

// CutVersion takes apart what a file tool wrote. The version is empty where it told none.
func CutVersion(output []byte) (text []byte, version string) {
	i := bytes.LastIndex(output, []byte(versionMark))
	if i < 0 {
		return output, ""
	}
	v := output[i+len(versionMark):]
	if _, err := hex.DecodeString(string(v)); err != nil || len(v) != 2*sha256.Size {
		return output, ""
	}
	return output[:i], string(v)
}

// FileOf is the path of the file whose version a call depends on or tells; empty for other calls. It is
// a name: the same file may have others.
func FileOf(workspace string, a Arguments) string {
	var path string
	switch a := a.(type) {
	case *Read:
		path = a.Path
	case *Write:
		path = a.Path
	case *Edit:
		path = a.Path
	default:
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(workspace, path)
	}
	return filepath.Clean(path)
}
