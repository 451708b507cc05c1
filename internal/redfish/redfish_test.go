// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/proxytest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/redfishtest"
)

// world is a BMC and a client of it.
type world struct {
	g   *WithT
	bmc *redfishtest.Server
	c   *redfish.Client
}

func newWorld(t *testing.T, options redfishtest.Options, change ...func(*redfish.Target)) *world {
	t.Helper()
	w := &world{g: NewWithT(t), bmc: redfishtest.New(options)}
	t.Cleanup(w.bmc.Close)
	target := redfish.Target{
		Address: w.bmc.Address(), Fingerprint: w.bmc.Fingerprint(),
		Credentials: redfish.Login(redfishtest.User, redfishtest.Password), Machine: redfish.Machine{UUID: redfishtest.UUID("1")},
		Interval: time.Millisecond,
		// Long enough for a busy machine; what must not end ends by the context of its test.
		RequestTimeout: 10 * time.Second, ChangeTimeout: 20 * time.Second,
	}
	for _, f := range change {
		f(&target)
	}
	var err error
	w.c, err = redfish.New(target)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.c.Close)
	return w
}

// soon makes readings give up soon.
func soon(t *redfish.Target) { t.ChangeTimeout = time.Second }

func TestPowerStateIsRead(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.g.Expect(w.c.State(t.Context())).To(Equal(redfish.On))
	w.bmc.SetPower("1", "Off")
	w.g.Expect(w.c.State(t.Context())).To(Equal(redfish.Off))
}

func TestPowerOffIsReadBackTwice(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.g.Expect(w.c.PowerOff(t.Context())).To(Succeed())
	w.g.Expect(w.bmc.Power("1")).To(Equal("Off"))
	w.g.Expect(w.bmc.Orders()).To(Equal([]string{"ForceOff"}), "a host that does not answer shuts nothing down gracefully")
	w.g.Expect(w.bmc.Readings()).To(Equal(3), "once to see that it is on, twice to believe that it is off")
}

func TestAComputerThatIsOffGetsNoOrderAndIsReadTwiceAllTheSame(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.bmc.SetPower("1", "Off")
	w.g.Expect(w.c.PowerOff(t.Context())).To(Succeed())
	w.g.Expect(w.bmc.Orders()).To(BeEmpty())
	w.g.Expect(w.bmc.Readings()).To(Equal(3))
}

func TestABMCThatTakesTheOrderAndStaysOnIsNeverBelieved(t *testing.T) {
	w := newWorld(t, redfishtest.Options{}, soon)
	w.bmc.Misbehave(redfishtest.Faults{StayOn: true})
	err := w.c.PowerOff(t.Context())
	var misbehaved *redfish.MisbehavedError
	w.g.Expect(err).To(BeAssignableToTypeOf(misbehaved))
	w.g.Expect(err).To(MatchError(ContainSubstring("says On all the while")))
	w.g.Expect(w.bmc.Orders()).To(Equal([]string{"ForceOff"}))
}

func TestAPowerStateThatFlapsIsNotOff(t *testing.T) {
	w := newWorld(t, redfishtest.Options{}, soon)
	w.bmc.Misbehave(redfishtest.Faults{Flap: true})
	w.g.Expect(w.c.PowerOff(t.Context())).To(MatchError(ContainSubstring("it said Off, and then something else again")))
}

func TestReadingsThatFailWhileThePowerChangesAreTriedAgain(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.bmc.Misbehave(redfishtest.Faults{FailReadings: 3})
	w.g.Expect(w.c.PowerOff(t.Context())).To(Succeed())
	w.g.Expect(w.bmc.Orders()).To(Equal([]string{"ForceOff"}))
	w.g.Expect(w.bmc.Readings()).To(Equal(6))

	w = newWorld(t, redfishtest.Options{}, soon)
	w.bmc.Misbehave(redfishtest.Faults{FailReadings: 1 << 20})
	w.g.Expect(w.c.PowerOff(t.Context())).To(MatchError(ContainSubstring("HTTP status 503")),
		"off as it is, nobody can tell")
	w.g.Expect(w.bmc.Power("1")).To(Equal("Off"))
}

// What was agreed minutes ago may not hold any more when the BMC has let us in.
func TestAnOrderThatIsNotDueAnyMoreIsNotGiven(t *testing.T) {
	withdrawn := errors.New("the host answers")
	for name, order := range map[string]func(*redfish.Client, context.Context) error{
		"off": (*redfish.Client).PowerOff, "cycle": (*redfish.Client).PowerCycle,
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			var w *world
			w = newWorld(t, redfishtest.Options{}, func(target *redfish.Target) {
				target.Due = func(context.Context) error {
					asked++
					w.g.Expect(w.bmc.Readings()).To(Equal(1), "the computer was compared before")
					return withdrawn
				}
			})
			w.g.Expect(order(w.c, t.Context())).To(MatchError(withdrawn))
			w.g.Expect(w.bmc.Orders()).To(BeEmpty())
			w.g.Expect(asked).To(Equal(1))
		})
	}

	// What brings a computer back is due once it is off.
	types := []string{"On", "ForceOff"}
	asked := 0
	w := newWorld(t, redfishtest.Options{ResetTypes: types}, func(target *redfish.Target) {
		target.Due = func(context.Context) error {
			asked++
			return nil
		}
	})
	w.g.Expect(w.c.PowerCycle(t.Context())).To(Succeed())
	w.g.Expect(w.bmc.Orders()).To(Equal([]string{"ForceOff", "On"}))
	w.g.Expect(asked).To(Equal(1))
}

func TestPowerOnAndCycle(t *testing.T) {
	for _, c := range []struct {
		types  []string
		begins string
		orders []string
	}{
		{nil, "On", []string{"PowerCycle"}},
		{[]string{"On", "ForceOff", "ForceRestart"}, "On", []string{"ForceRestart"}},
		{[]string{"On", "ForceOff"}, "On", []string{"ForceOff", "On"}},
		{nil, "Off", []string{"On"}},
		{[]string{}, "On", []string{"ForceRestart"}},
	} {
		t.Run(fmt.Sprintf("%v from %s", c.types, c.begins), func(t *testing.T) {
			w := newWorld(t, redfishtest.Options{ResetTypes: c.types})
			w.bmc.SetPower("1", c.begins)
			w.g.Expect(w.c.PowerCycle(t.Context())).To(Succeed())
			w.g.Expect(w.bmc.Orders()).To(Equal(c.orders))
			w.g.Expect(w.bmc.Power("1")).To(Equal("On"))
		})
	}
}

func TestAMissingResetTypeIsNotOrderedAndNamed(t *testing.T) {
	for _, inInfo := range []bool{false, true} {
		w := newWorld(t, redfishtest.Options{ResetTypes: []string{"On", "GracefulShutdown"}, InActionInfo: inInfo})
		err := w.c.PowerOff(t.Context())
		var refused *redfish.RefusedError
		w.g.Expect(err).To(BeAssignableToTypeOf(refused))
		w.g.Expect(err).To(MatchError(And(ContainSubstring("ordering the reset ForceOff"),
			ContainSubstring("its reset types are On, GracefulShutdown"))))
		w.g.Expect(w.bmc.Orders()).To(BeEmpty())
	}
}

func TestOneOfSeveralSystemsMustBeNamed(t *testing.T) {
	options := redfishtest.Options{Systems: []string{"blade-1", "blade-2"}}
	w := newWorld(t, options)
	_, err := w.c.State(t.Context())
	w.g.Expect(err).To(MatchError(And(ContainSubstring("spec.bmc.system"),
		ContainSubstring("/redfish/v1/Systems/blade-1, /redfish/v1/Systems/blade-2"))))

	w = newWorld(t, options, func(t *redfish.Target) {
		t.System, t.Machine.UUID = "/redfish/v1/Systems/blade-2", redfishtest.UUID("blade-2")
	})
	w.g.Expect(w.c.PowerOff(t.Context())).To(Succeed())
	w.g.Expect(w.bmc.Power("blade-1")).To(Equal("On"))
	w.g.Expect(w.bmc.Power("blade-2")).To(Equal("Off"))

	w = newWorld(t, options, func(t *redfish.Target) { t.System = "/redfish/v1/Systems/blade-3" })
	w.g.Expect(w.c.State(t.Context())).Error().To(MatchError(ContainSubstring("HTTP status 404")))
}

func TestAHangingBMCIsUnreachableAndTheContextEndsTheWait(t *testing.T) {
	w := newWorld(t, redfishtest.Options{}, func(t *redfish.Target) { t.RequestTimeout = 50 * time.Millisecond })
	w.bmc.Misbehave(redfishtest.Faults{Hang: true})
	_, err := w.c.State(t.Context())
	var unreachable *redfish.UnreachableError
	w.g.Expect(err).To(BeAssignableToTypeOf(unreachable))

	w = newWorld(t, redfishtest.Options{})
	w.bmc.Misbehave(redfishtest.Faults{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.c.PowerOff(ctx) }()
	cancel()
	w.g.Eventually(done).WithTimeout(30 * time.Second).Should(Receive(MatchError(context.Canceled)))
}

func TestASlowBMCIsWaitedFor(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.bmc.Misbehave(redfishtest.Faults{Delay: 20 * time.Millisecond})
	w.g.Expect(w.c.PowerOff(t.Context())).To(Succeed())
}

func TestABMCThatIsGoneIsUnreachable(t *testing.T) {
	w := newWorld(t, redfishtest.Options{})
	w.bmc.Close()
	_, err := w.c.State(t.Context())
	var unreachable *redfish.UnreachableError
	w.g.Expect(err).To(BeAssignableToTypeOf(unreachable))
}

func TestBrokenAnswersAreMisbehavior(t *testing.T) {
	for name, faults := range map[string]redfishtest.Faults{
		"5xx":         {Status: 503},
		"huge":        {Huge: true},
		"no JSON":     {Garbage: "<html>login</html>"},
		"no state":    {Garbage: `{"PowerState":"Toasty"}`},
		"wrong types": {Garbage: `{"Systems":17}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, redfishtest.Options{}, soon)
			w.bmc.Misbehave(faults)
			_, err := w.c.State(t.Context())
			var misbehaved *redfish.MisbehavedError
			w.g.Expect(err).To(BeAssignableToTypeOf(misbehaved))
			w.g.Expect(w.c.PowerOff(t.Context())).NotTo(Succeed())
			w.g.Expect(w.bmc.Power("1")).To(Equal("On"))
		})
	}
}

func TestAddressesMustBeServices(t *testing.T) {
	g := NewWithT(t)
	for _, address := range []string{"", "http://10.0.0.1", "https://", "https://user:password@10.0.0.1",
		"https://10.0.0.1/redfish/v1", "10.0.0.1"} {
		_, err := redfish.New(redfish.Target{Address: address})
		g.Expect(err).To(HaveOccurred(), address)
	}
}

func TestTheProxyOfTheEnvironmentIsNotAsked(t *testing.T) {
	proxytest.NotAsked(t, func() {
		g := NewWithT(t)
		c, err := redfish.New(redfish.Target{Address: "https://bmc.invalid",
			Credentials: redfish.Login(redfishtest.User, redfishtest.Password)})
		g.Expect(err).NotTo(HaveOccurred())
		defer c.Close()
		g.Expect(c.State(t.Context())).Error().To(HaveOccurred())
	})
}
