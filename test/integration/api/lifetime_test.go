// SPDX-License-Identifier: Apache-2.0

package api

import "testing"

func TestStorageAndSuspend(t *testing.T) {
	refusals{
		"storage on a claim":          {set("spec.workspace.storage", object{"type": "PersistentVolumeClaim", "size": "2Gi", "storageClassName": "fast"}), ""},
		"another storage":             {set("spec.workspace.storage", object{"type": "HostPath"}), `supported values: "PersistentVolumeClaim", "EmptyDir"`},
		"a storage class for none":    {set("spec.workspace.storage", object{"type": "EmptyDir", "storageClassName": "fast"}), "storageClassName is for a PersistentVolumeClaim"},
		"a storage class in capitals": {set("spec.workspace.storage", object{"type": "PersistentVolumeClaim", "storageClassName": "Fast"}), "spec.workspace.storage.storageClassName: Invalid value"},
		"a session's own retention":   {set("spec.workspace.storage", object{"type": "PersistentVolumeClaim", "retention": "Retain"}), `unknown field "spec.workspace.storage.retention"`},
		"suspended from the start":    {set("spec.suspend", true), ""},
	}.run(t, session)
}
