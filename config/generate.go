// SPDX-License-Identifier: Apache-2.0

// Package config holds what is generated from types and markers: the CRDs and the
// operator's roles. The chart has the same files, because a chart cannot reach
// outside its own directory.
package config

import "embed"

// CRDs are the generated custom resource definitions.
//
//go:embed crd/*.yaml
var CRDs embed.FS

// Role is what the operator may do: a ClusterRole, and a Role in its own namespace.
//
//go:embed rbac/role.yaml
var Role []byte

//go:generate go tool -modfile=../hack/tools/go.mod controller-gen object:headerFile=../hack/boilerplate.go.txt paths=../api/...
//go:generate go tool -modfile=../hack/tools/go.mod controller-gen crd paths=../api/... output:crd:dir=crd
//go:generate go tool -modfile=../hack/tools/go.mod controller-gen crd paths=../api/... output:crd:dir=../charts/agentsession/files/crd
//go:generate go tool -modfile=../hack/tools/go.mod controller-gen rbac:roleName=agentsession-manager paths=../controllers/... output:rbac:dir=rbac
//go:generate go tool -modfile=../hack/tools/go.mod controller-gen rbac:roleName=agentsession-manager paths=../controllers/... output:rbac:dir=../charts/agentsession/files/rbac
//go:generate go run ../hack/apidoc --out ../docs/api.md
