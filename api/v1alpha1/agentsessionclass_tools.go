// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ToolName is the name of a tool that a model may be offered: read, write, edit, glob
// and grep are for files, bash runs a command, terminal one that lives on between calls.
// +kubebuilder:validation:Enum=read;write;edit;glob;grep;bash;terminal
type ToolName string
