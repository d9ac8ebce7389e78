// SPDX-License-Identifier: Apache-2.0

// Package telemetry tells an OpenTelemetry collector what turns, model requests
// and tool calls were made, how long they took and how they ended, in the terms of
// the semantic conventions for generative AI. It is never told what was said: no
// prompt, no answer, no argument and no output. Without an endpoint it does
// nothing, and one in trouble holds nobody up: what cannot be sent is dropped.
package telemetry
