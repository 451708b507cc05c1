// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// parallelLives bounds the hosts that live at once.
const parallelLives = 16

// courts are the places for clusters, each with an API server, an etcd and a management of its own, that live at once. More
// of them than the processors carry do not take longer but time each other out, beside the tests of other packages above
// all.
var courts = make(chan struct{}, 3*runtime.GOMAXPROCS(0))

// thePlane is the API server of all tests of this package; nil without its binaries.
var thePlane *plane.Plane

// theSecond is the API server that all of them move to, each in namespaces of its own. The first who needs it starts
// it.
var theSecond struct {
	once  sync.Once
	plane *plane.Plane
	err   error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	// Lives on simulated hosts mostly wait; as many at once as there are processors would take hours. -parallel still counts.
	if flag.Parse(); flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(parallelLives))
	}
	if os.Getenv(rig.AssetsVariable) == "" {
		return m.Run()
	}
	var err error
	if thePlane, err = plane.Start(context.Background(), "sim"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		for _, p := range []*plane.Plane{thePlane, theSecond.plane} {
			if p != nil {
				_ = p.Stop()
			}
		}
	}()
	return m.Run()
}

// needsPlane skips a test that has no API server, and says how to get one.
func needsPlane(t testing.TB) *plane.Plane {
	t.Helper()
	// Read here as well: a test that was skipped is not taken from the cache when the variable is set.
	if os.Getenv(rig.AssetsVariable) == "" || thePlane == nil {
		t.Skipf("%[1]s is not set: run `export %[1]s=$(hack/bundle/envtest-assets.sh)` first", rig.AssetsVariable)
	}
	return thePlane
}

// secondPlane is a management plane to move to.
func secondPlane(t testing.TB) *plane.Plane {
	t.Helper()
	needsPlane(t)
	theSecond.once.Do(func() { theSecond.plane, theSecond.err = plane.Start(context.Background(), "sim-second") })
	if theSecond.err != nil {
		t.Fatal(theSecond.err)
	}
	return theSecond.plane
}
