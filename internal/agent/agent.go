// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/telemetry"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Options say which session this is and where its things are.
type Options struct {
	SessionUID  string
	Incarnation string
	PodUID      string
	Version     string   // of this program
	Containers  []string // names of the tools containers
	LogDir      string
	CtlDir      string
	KeyFile     string // the model's API key; a file that does not exist means that there is none
	Stdout      io.Writer
	Log         *slog.Logger

	// Sleep waits before a request is repeated, Random spreads the waits: a number in [0,1). Nil
	// means the real ones.
	Sleep    func(context.Context, time.Duration) error
	Random   func() float64
	Boottime func() time.Duration // the clock of the lease; nil is CLOCK_BOOTTIME
	Now      func() time.Time     // the clock of requests to people; nil is the machine's

	// Words say a policy to the model; nil is policy.Contributions. Only an experiment on
	// wording has others.
	Words Words
}

// Words render a policy as the contributions of a snapshot.
type Words func(p policy.Policy, workspace string) []policy.Contribution

const (
	mirrorBytes = 8 << 20
	// logReserve is what the log can still take when somebody else has filled the volume: one line of
	// any length, or thousands of ordinary ones.
	logReserve = eventlog.MaxLine
	// toolsPatience is how long a tools container may be away before that is a problem.
	toolsPatience = 30 * time.Second
	// lookAgain is how often the agent looks for what nobody tells it of: a container that
	// stays away, a key that has come.
	lookAgain = 2 * time.Second
)

// Agent is one boot of a session's agent.
type Agent struct {
	o      Options
	mirror *eventlog.Mirror
	log    *eventlog.Log
	tools  *toolsocket.Server
	trace  *telemetry.Tracer
	root   context.Context
	cancel context.CancelFunc

	secrets *secrets
	outputs *outputs

	// mu orders everything that the log orders. What it guards is durable whenever it is free.
	mu      sync.Mutex
	f       *fold
	changed chan struct{} // closed and replaced whenever somebody may have waited for something
	fatal   error         // the log cannot be written
	fresh   bool          // the log was empty and nothing has been written yet
	cut     *eventlog.Cut // what recovery dropped
	boot    int

	config     *wire.Config // nil before the first desired state
	headerDone bool         // the header was compared with the configuration in this boot
	headSeen   bool         // the log was compared with what status knows
	lost       *wire.Problem
	stopping   bool // for good
	suspending bool // until the next boot
	settled    bool // one of both is done

	target    *pushed // the newest policy accepted
	applied   *pushed // the newest policy applied in this boot
	epoch     wire.Epoch
	drains    wire.Epoch           // of the newest narrowing: what containers have to confirm
	overdue   wire.Epoch           // of the newest narrowing that was not confirmed in time
	bound     policy.Profile       // what the supervisors hold
	closed    bool                 // no call starts
	running   int                  // calls started and not answered yet
	granted   *passed              // the one of them that has a grant
	terminals map[string]*terminal // by name
	lease     lease
	stopTurn  context.CancelCauseFunc

	nextSummary int // bytes that the transcript must have before a summary is asked for again

	provider   model.Connected
	endpoint   modelEndpoint // that provider speaks to
	keyMissing bool          // the endpoint wants a key and there is none

	toolsDown time.Time // since when a container is away; zero when none is
	observed  wire.Observed
}

// pushed is a policy that the controller wants.
type pushed struct {
	doc       policy.Document
	stamp     policy.Stamp
	workspace string
}

// modelEndpoint is where and how a model is spoken to.
type modelEndpoint struct{ provider, baseURL, caBundle, keyFile string }

// New opens the log, closes what an earlier boot left open and listens for the
// supervisors. No tool runs before a policy is given.
func New(o Options) (*Agent, error) {
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Boottime == nil {
		o.Boottime = boottime
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Agent{o: o, f: newFold(), terminals: map[string]*terminal{}, changed: make(chan struct{}), toolsDown: time.Now(), secrets: &secrets{path: o.KeyFile}}
	if o.Words != nil {
		a.f.words = o.Words
	}
	a.root, a.cancel = context.WithCancel(context.Background())
	a.trace = telemetry.New(telemetry.Subject{SessionUID: o.SessionUID, PodUID: o.PodUID, Version: o.Version}, o.Log)
	a.mirror = eventlog.NewMirror(o.Stdout, mirrorBytes)
	log, recovered, err := eventlog.Open(o.LogDir, eventlog.Options{
		PodUID: o.PodUID, Mirror: a.mirror.Line, Each: a.takeIn, Secrets: a.secrets.texts, Reserve: logReserve,
	})
	if err != nil {
		return nil, errors.Join(err, a.mirror.Close(context.Background()))
	}
	a.outputs = openOutputs(o.LogDir)
	a.log, a.fresh, a.boot, a.cut = log, recovered.Fresh, recovered.Boot, recovered.Cut
	if err := a.recover(); err != nil {
		return nil, errors.Join(err, a.shutdown())
	}
	if err := a.listen(); err != nil {
		return nil, errors.Join(err, a.shutdown())
	}
	return a, nil
}

func (a *Agent) listen() (err error) {
	a.mu.Lock() // supervisors may come before Listen has returned
	defer a.mu.Unlock()
	a.tools, err = toolsocket.Listen(toolsocket.Options{
		Dir: a.o.CtlDir, Containers: a.o.Containers, Epoch: a.epoch, Changed: a.toolsChanged, Log: a.o.Log,
	})
	if err == nil {
		a.publishLocked()
	}
	return err
}

// takeIn folds an event of an earlier boot.
func (a *Agent) takeIn(e eventlog.Event) error {
	if err := a.f.apply(e); err != nil {
		return fmt.Errorf("the event log is whole but makes no sense: %w", err)
	}
	return nil
}

// recover writes this boot into the log, if there is one.
func (a *Agent) recover() error {
	if s := a.f.session; s != nil && s.SessionUID != a.o.SessionUID {
		return fmt.Errorf("the log volume belongs to session %s, not to %s: give each session a volume of its own",
			s.SessionUID, a.o.SessionUID)
	}
	a.lease.expired = a.f.paused
	if a.fresh {
		a.epoch.Boot = 2 // behind the session's own first event, see begin
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.recordLocked(a.bootEntry()); err != nil {
		return err
	}
	a.epoch.Boot = a.f.bootSeq
	return a.recordLocked(a.f.planRecovery()...)
}

func (a *Agent) bootEntry() entry {
	return entry{eventlog.TypeBoot, eventlog.Boot{
		Boot: a.boot, PodUID: a.o.PodUID, Incarnation: a.o.Incarnation, AgentVersion: a.o.Version, Cut: a.cut,
	}}
}

// Run is the life of the agent. It ends, in order, when ctx does, and with an error when
// the log cannot be written any more.
func (a *Agent) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.cancel)()
	var wg sync.WaitGroup
	wg.Go(a.applyPolicies)
	wg.Go(a.turns)
	wg.Go(a.watchTools)
	wg.Go(a.watchLease)
	wg.Wait()
	return a.shutdown()
}

func (a *Agent) shutdown() error {
	a.cancel()
	a.trace.Close()
	if a.tools != nil {
		a.tools.Close()
	}
	a.mu.Lock()
	err := a.fatal
	if a.provider != nil {
		a.provider.Close()
	}
	a.mu.Unlock()
	if closeErr := a.log.Close(); err == nil {
		err = closeErr
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if mirrorErr := a.mirror.Close(ctx); mirrorErr != nil {
		a.o.Log.Warn("The end of the transcript did not reach standard output; the log has it", "error", mirrorErr)
	}
	return err
}
