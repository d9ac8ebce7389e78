// SPDX-License-Identifier: Apache-2.0

package api

import "testing"

func TestLifetimes(t *testing.T) {
	refusals{
		"all of them": {set("spec", object{"completion": "WhenIdle", "activeDeadlineSeconds": int64(1), "ttlSecondsAfterFinished": int64(0),
			"idlePolicy": object{"suspendAfterSeconds": int64(1), "deleteAfterSeconds": int64(2)}}), ""},
		"an empty idlePolicy":        {set("spec.idlePolicy", object{}), "idlePolicy is empty"},
		"deleted before suspended":   {set("spec.idlePolicy", object{"suspendAfterSeconds": int64(2), "deleteAfterSeconds": int64(2)}), "deleteAfterSeconds must be greater than suspendAfterSeconds"},
		"suspended after no time":    {set("spec.idlePolicy", object{"suspendAfterSeconds": int64(0)}), "spec.idlePolicy.suspendAfterSeconds: Invalid value"},
		"deleted after no time":      {set("spec.idlePolicy", object{"deleteAfterSeconds": int64(0)}), "spec.idlePolicy.deleteAfterSeconds: Invalid value"},
		"no time at all":             {set("spec.activeDeadlineSeconds", int64(0)), "spec.activeDeadlineSeconds: Invalid value"},
		"a deadline beyond limits":   {set("spec.activeDeadlineSeconds", int64(315360001)), "spec.activeDeadlineSeconds: Invalid value"},
		"deleted before it finished": {set("spec.ttlSecondsAfterFinished", int64(-1)), "spec.ttlSecondsAfterFinished: Invalid value"},
		"finished on another ground": {set("spec.completion", "Always"), `supported values: "Never", "WhenIdle"`},
	}.run(t, session)
	refusals{
		"the lifetime": {set("spec", object{"completion": "WhenIdle", "activeDeadlineSeconds": int64(1), "ttlSecondsAfterFinished": int64(0),
			"idlePolicy": object{"deleteAfterSeconds": int64(2)}}), ""},
	}.runUpdates(t, session)
}

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
