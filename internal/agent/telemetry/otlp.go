// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exportTimeout bounds one request to the collector.
const exportTimeout = 5 * time.Second

// exporter sends spans by OTLP over HTTP in its JSON encoding. The official exporter brings
// protocol buffers and gRPC with it: 7 MB of program and 5 MiB of memory in each idle agent.
type exporter struct {
	url    string
	client *http.Client
	log    *slog.Logger
	failed atomic.Bool // the last request; said once
}

func newExporter(endpoint string, log *slog.Logger) *exporter {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: 30 * time.Second}
	return &exporter{
		url: strings.TrimSuffix(endpoint, "/") + "/v1/traces", log: log,
		client: &http.Client{Transport: transport, Timeout: exportTimeout},
	}
}

// ExportSpans implements sdktrace.SpanExporter. It has no errors for its caller, which would
// print them: what cannot be sent is dropped.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.send(ctx, spans)
	if err != nil && !e.failed.Swap(true) {
		e.log.Warn("Traces are not taken by the collector and are dropped until it does", "endpoint", e.url, "error", err.Error())
	}
	if err == nil && e.failed.Swap(false) {
		e.log.Info("Traces are taken by the collector again", "endpoint", e.url)
	}
	return nil
}

func (e *exporter) send(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	body, err := json.Marshal(encode(spans))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", resp.Status)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// The messages of opentelemetry.proto.trace.v1 as far as they are used, in the JSON encoding of
// OTLP: identities in hex, 64-bit numbers as strings.
type (
	tracesData struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resourceOf   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resourceOf struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		TraceID      string     `json:"traceId"`
		SpanID       string     `json:"spanId"`
		ParentSpanID string     `json:"parentSpanId,omitempty"`
		Name         string     `json:"name"`
		Kind         int        `json:"kind"`
		Start        string     `json:"startTimeUnixNano"`
		End          string     `json:"endTimeUnixNano"`
		Attributes   []keyValue `json:"attributes,omitempty"`
		Status       status     `json:"status"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	keyValue struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	anyValue struct {
		String *string     `json:"stringValue,omitempty"`
		Int    string      `json:"intValue,omitempty"`
		Array  *arrayValue `json:"arrayValue,omitempty"`
	}
	arrayValue struct {
		Values []anyValue `json:"values"`
	}
)

// encode groups nothing: all spans are of one agent.
func encode(spans []sdktrace.ReadOnlySpan) tracesData {
	var s scopeSpans
	s.Scope.Name = scope
	for _, x := range spans {
		s.Spans = append(s.Spans, encodeSpan(x))
	}
	return tracesData{[]resourceSpans{{resourceOf{encodeAll(spans[0].Resource().Attributes())}, []scopeSpans{s}}}}
}

func encodeSpan(x sdktrace.ReadOnlySpan) span {
	s := span{
		TraceID: x.SpanContext().TraceID().String(), SpanID: x.SpanContext().SpanID().String(), Name: x.Name(),
		Kind:  int(x.SpanKind()), // the same numbers
		Start: strconv.FormatInt(x.StartTime().UnixNano(), 10), End: strconv.FormatInt(x.EndTime().UnixNano(), 10),
		Attributes: encodeAll(x.Attributes()),
	}
	if x.Parent().IsValid() {
		s.ParentSpanID = x.Parent().SpanID().String()
	}
	if x.Status().Code == codes.Error {
		s.Status = status{2, x.Status().Description} // STATUS_CODE_ERROR
	}
	return s
}

func encodeAll(attributes []attribute.KeyValue) []keyValue {
	var all []keyValue
	for _, a := range attributes {
		all = append(all, keyValue{string(a.Key), encodeValue(a.Value)})
	}
	return all
}

// encodeValue knows the types that are used here.
func encodeValue(v attribute.Value) anyValue {
	switch v.Type() {
	case attribute.INT64:
		return anyValue{Int: strconv.FormatInt(v.AsInt64(), 10)}
	case attribute.STRINGSLICE:
		array := &arrayValue{}
		for _, s := range v.AsStringSlice() {
			array.Values = append(array.Values, anyValue{String: &s})
		}
		return anyValue{Array: array}
	default:
		return anyValue{String: new(v.String())}
	}
}
