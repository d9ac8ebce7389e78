// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/tool"
)

// maxFiles is of how many files, those seen last, the version is remembered.
const maxFiles = 4096

// files are the versions of files that the model has read or written last, by their names.
type files map[string]seenFile

type seenFile struct {
	version string
	seq     uint64
}

func (f *files) see(seq uint64, v *eventlog.FileVersion) {
	if v == nil {
		return
	}
	if *f == nil {
		*f = files{}
	}
	(*f)[v.Path] = seenFile{v.Version, seq}
	if len(*f) <= maxFiles {
		return
	}
	oldest := v.Path
	for path, s := range *f {
		if s.seq < (*f)[oldest].seq {
			oldest = path
		}
	}
	delete(*f, oldest)
}

// version is what a call's tool is told of its file: an edit is refused where the file is not as the model
// saw it last. It may edit what it never saw: the text that it replaces must be there.
func (f *fold) version(c tool.Call, file string) string {
	if file == "" {
		return ""
	}
	if s, ok := f.files[file]; ok && c.Tool.Name == "edit" {
		return s.version
	}
	return tool.AnyVersion
}
