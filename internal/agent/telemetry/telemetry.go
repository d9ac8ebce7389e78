// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/agentsession-dev/operator/internal/agent/model"
)

const (
	// The bounds of what waits to be sent.
	maxQueue  = 512
	maxBatch  = 128
	sendEvery = 5 * time.Second
	// lastWord is how long the end of the agent waits for what is left.
	lastWord = time.Second
	maxName  = 64 // bytes of a name that a model chose

	scope = "github.com/agentsession-dev/operator/internal/agent"
)

// Subject is who is told of.
type Subject struct{ SessionUID, PodUID, Version string }

// Tracer makes the spans of one agent. Its zero value has no endpoint.
type Tracer struct {
	of  Subject
	log *slog.Logger

	mu       sync.Mutex
	endpoint string
	session  string
	provider *sdktrace.TracerProvider // nil without an endpoint
}

// New makes a tracer without an endpoint.
func New(of Subject, log *slog.Logger) *Tracer { return &Tracer{of: of, log: log} }

// Configure says where spans of the session (namespace/name) are sent from now on; to
// "" nowhere.
func (t *Tracer) Configure(endpoint, session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endpoint == endpoint && t.session == session {
		return
	}
	if old := t.provider; old != nil {
		go shutdown(old) // a collector in trouble must not hold up who configures
	}
	t.endpoint, t.session, t.provider = endpoint, session, nil
	if endpoint == "" {
		return
	}
	namespace, _, _ := strings.Cut(session, "/")
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(newExporter(endpoint, t.log),
			sdktrace.WithMaxQueueSize(maxQueue), sdktrace.WithMaxExportBatchSize(maxBatch), sdktrace.WithBatchTimeout(sendEvery)),
		sdktrace.WithResource(resource.NewSchemaless(
			semconv.ServiceName("agentsession-agent"), semconv.ServiceVersion(t.of.Version), semconv.ServiceInstanceID(t.of.PodUID),
			semconv.K8SNamespaceName(namespace), semconv.K8SPodUID(t.of.PodUID), attribute.String("agentsession.session", session),
		)),
	)
}

// Close sends what is left, if that is quick.
func (t *Tracer) Close() {
	t.mu.Lock()
	p := t.provider
	t.provider, t.endpoint = nil, ""
	t.mu.Unlock()
	if p != nil {
		shutdown(p)
	}
}

func shutdown(p *sdktrace.TracerProvider) {
	ctx, cancel := context.WithTimeout(context.Background(), lastWord)
	defer cancel()
	_ = p.Shutdown(ctx) // the exporter has said what is wrong
}

func (t *Tracer) start(ctx context.Context, name string, kind trace.SpanKind, operation attribute.KeyValue, more ...attribute.KeyValue) (context.Context, trace.Span) {
	t.mu.Lock()
	p := t.provider
	t.mu.Unlock()
	if p == nil {
		return ctx, noop.Span{}
	}
	return p.Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind),
		trace.WithAttributes(append(more, operation, semconv.GenAIConversationID(t.of.SessionUID))...))
}

// Turn begins the span of a turn. End tells the reason for which the turn ended; "" is that
// the agent ended before it.
func (t *Tracer) Turn(ctx context.Context, number int) (_ context.Context, end func(reason string)) {
	ctx, span := t.start(ctx, "invoke_agent", trace.SpanKindInternal, semconv.GenAIOperationNameInvokeAgent, attribute.Int("agentsession.turn", number))
	return ctx, func(reason string) {
		span.SetAttributes(attribute.String("agentsession.turn.end", reason))
		if reason != "Completed" {
			fail(span, reason)
		}
		span.End()
	}
}

// Usage counts tokens in disjoint buckets.
type Usage struct{ Input, CachedInput, Output int64 }

// Request begins the span of one request to a model. End tells how the answer finished and what
// it cost, or the kind of the failure.
func (t *Tracer) Request(ctx context.Context, provider, name string) (_ context.Context, end func(finish string, used Usage, failure string)) {
	name = cut(name)
	ctx, span := t.start(ctx, "chat "+name, trace.SpanKindClient, semconv.GenAIOperationNameChat,
		providerName(provider), semconv.GenAIRequestModel(name))
	return ctx, func(finish string, used Usage, failure string) {
		if failure != "" {
			fail(span, failure)
			span.End()
			return
		}
		// By the conventions the input includes what was cached of it.
		span.SetAttributes(
			semconv.GenAIResponseFinishReasons(finish),
			semconv.GenAIUsageInputTokens(int(used.Input+used.CachedInput)), semconv.GenAIUsageOutputTokens(int(used.Output)),
			semconv.GenAIUsageCacheReadInputTokens(int(used.CachedInput)),
		)
		span.End()
	}
}

func providerName(provider string) attribute.KeyValue {
	if provider == model.ProviderAnthropic {
		return semconv.GenAIProviderNameAnthropic
	}
	return semconv.GenAIProviderNameOpenAI // which names the protocol, not who serves it
}

// Tool begins the span of a tool call. End tells the mode that it ran in, "" where it did not run,
// and the kind of its failure.
func (t *Tracer) Tool(ctx context.Context, name, id string) (_ context.Context, end func(mode, failure string)) {
	name = cut(name)
	ctx, span := t.start(ctx, "execute_tool "+name, trace.SpanKindInternal, semconv.GenAIOperationNameExecuteTool,
		semconv.GenAIToolName(name), semconv.GenAIToolCallID(cut(id)), semconv.GenAIToolType("function"))
	return ctx, func(mode, failure string) {
		if mode != "" {
			span.SetAttributes(attribute.String("agentsession.sandbox.mode", mode))
		}
		if failure != "" {
			fail(span, failure)
		}
		span.End()
	}
}

func fail(span trace.Span, kind string) {
	if kind == "" {
		kind = "interrupted"
	}
	span.SetStatus(codes.Error, kind)
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

func cut(s string) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	return strings.ToValidUTF8(s, "")
}
