// SPDX-License-Identifier: Apache-2.0

// Package source fills the workspace of a session before any tool runs in it: with a
// clone of a Git repository, or with the files of a ConfigMap. It decides whether there is
// anything left to fetch, and whether a failure needs somebody or only time. It refuses
// to know sessions, and it runs in a container of its own that ends before the tools start.
//
// What has been fetched stands in a directory that no tool's container mounts:
//
//	(nothing) ──► begun ──► fetched
//
// begun is durable before the workspace is touched: what is found there beside it is a
// half-finished fetch, and is removed. Files without it are nobody's leftovers and are
// left alone. fetched is durable after the workspace is; from then on nothing is touched.
package source
