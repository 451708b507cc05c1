// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owner keeps the record on a host that says which machine it serves. A controller with an older generation,
// for example one left behind by a pivot, may read and nothing more.
//
// The record outlives its claim: a released one names no machine, and keeps the generation. Without it, a host that was
// released could not tell a stale copy of the claim's objects from the claim itself.
//
// Several releases of Quoin read and write it. One that adds a field which others may carry along without knowing it
// leaves the format as it is: such a field stays until a release of the host. Whatever others would misread raises the
// format, and a record of a format that is not known keeps its host as it is.
package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Record is /var/lib/quoin/owner.json.
type Record struct {
	// Namespace and Host name the QuoinHost.
	Namespace string `json:"namespace"`
	Host      string `json:"host"`
	// Machine is the QuoinMachine's name.
	Machine string `json:"machine"`
	// UID identifies the claim; it must be stable over a pivot (a pivot changes object UIDs). Empty when the host was
	// released.
	UID string `json:"uid"`
	// Generation grows with each new claim of the host, and with each change of its management cluster. The host keeps the
	// highest one that it has seen.
	Generation int64 `json:"generation"`
	// ManagementCluster distinguishes two management clusters that count to the same generation, because both were made
	// from one copy of the objects: it is the UID of the QuoinHost that raised the generation. Empty in records of before
	// it was written down.
	ManagementCluster string `json:"plane,omitempty"`
	// Order is the last one that the host was given under this generation. Two management clusters that were made from one
	// snapshot of etcd have the same objects and generations; after the first order that one of them gives, the
	// other does not know it.
	Order string `json:"order,omitempty"`
	// Heard is the order before Order: the host may show it because Order did not reach it yet. It is ours alone, and not
	// on the host.
	Heard string `json:"-"`
	// Quarantine is why nobody may use the host. Whoever takes the host keeps it; only a release, which a verified reset
	// comes before, ends it. So it is found again by objects that are older than it.
	Quarantine Quarantine `json:"quarantine,omitzero"`

	// later are the fields that a later release of Quoin wrote, as a JSON object; empty when there are none.
	later string
}

// Quarantine says why nobody may use a host, and since when.
type Quarantine struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Since is a time in RFC 3339.
	Since string `json:"since,omitempty"`
}

// Released says that the host serves nobody, and only remembers how far the generations came.
func (r Record) Released() bool { return r.UID == "" }

// MarshalJSON implements json.Marshaler.
func (r Record) MarshalJSON() ([]byte, error) {
	type known Record
	data, err := json.Marshal(known(r))
	if err != nil || r.later == "" {
		return data, err
	}
	return append(append(data[:len(data)-1], ','), r.later[1:]...), nil
}

// Format of the records that are written and understood. It is written down only from 2 on.
const Format = 1

// UnreadableError says that it is not known whom the host serves, so nothing is done to it.
type UnreadableError struct {
	// Format of the record when a later release of Quoin wrote it; 0 when it is damaged.
	Format int
}

func (e *UnreadableError) Error() string {
	const record = "the owner record on the host (owner.json in " + run.DefaultRoot + ")"
	if e.Format > Format {
		return fmt.Sprintf("%s has format %d, which a later release of Quoin wrote, and this one reads format %d, so it "+
			"changes nothing there: install that release again", record, e.Format, Format)
	}
	return record + " cannot be read; find out whose host it is, then correct or remove that file"
}

// HeldError says that somebody else owns the host.
type HeldError struct{ Holder Record }

func (e *HeldError) Error() string {
	return fmt.Sprintf("the host is owned by machine %s/%s (claim %s, generation %d); it is taken again only after that "+
		"machine was deleted and the host cleaned",
		e.Holder.Namespace, e.Holder.Machine, e.Holder.UID, e.Holder.Generation)
}

// StaleError says that our knowledge is older than the host's: another management cluster took over.
type StaleError struct{ Ours, Holder Record }

// ServesAnother reports whether err is what a host says that serves another management cluster, or another claim.
func ServesAnother(err error) bool {
	var stale *StaleError
	var held *HeldError
	return errors.As(err, &stale) || errors.As(err, &held)
}

// Order reports whether the host knows our generation, and was given an order since that we know nothing of.
func (e *StaleError) Order() bool { return outrun(e.Ours, e.Holder) }

func (e *StaleError) Error() string {
	if e.Order() {
		ours := "none"
		if e.Ours.Order != "" {
			ours = e.Ours.Order
		}
		return fmt.Sprintf("the host was given order %s of generation %d, of which these objects know nothing (their last "+
			"is %s): a management cluster with the same objects gave it, "+
			"so this one is a copy of that, or was restored from before it, and must not change the host", e.Holder.Order,
			e.Holder.Generation, ours)
	}
	if e.Holder.Generation == e.Ours.Generation {
		return fmt.Sprintf(
			"the host knows generation %d of its claim, ours is %d as well: another management plane came to it first, so "+
				"this one must not change the host",
			e.Holder.Generation, e.Ours.Generation)
	}
	return fmt.Sprintf("the host knows generation %d of its claim, ours is %d: another management plane took over, so "+
		"this one must not change the host",
		e.Holder.Generation, e.Ours.Generation)
}

// Store says where the record lies. The zero value is what production uses.
type Store struct {
	// Root is the directory of ours on the host; empty means run.DefaultRoot.
	Root string
}

// Acquire writes the record atomically. It succeeds when there is none, or when the present one has no newer generation
// and is released or has the same UID; else *StaleError (a newer generation, whosever it is) or *HeldError.
func Acquire(ctx context.Context, host ssh.Host, record Record) error {
	return Store{}.Acquire(ctx, host, record)
}

// Read returns the record, or nil when the host has none.
func Read(ctx context.Context, host ssh.Host) (*Record, error) { return Store{}.Read(ctx, host) }

// Isolate writes into the record why nobody may use the host. Whom it serves stays as it is: a host without a record,
// or one that was released, then has a released one. It succeeds under the conditions of Acquire, and may be repeated.
func Isolate(ctx context.Context, host ssh.Host, record Record, why Quarantine) error {
	return Store{}.Isolate(ctx, host, record, why)
}

// Release writes that the host serves nobody, and keeps the generation. It succeeds under the conditions of Acquire,
// and may be repeated. A quarantine ends with it.
func Release(ctx context.Context, host ssh.Host, record Record) error {
	return Store{}.Release(ctx, host, record)
}

var (
	name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	// errChanged: somebody wrote between our read and our write.
	errChanged = errors.New("the owner record changed while it was written")
)

// Validate says why a record cannot be written.
func (r Record) Validate() error {
	for field, value := range map[string]string{"namespace": r.Namespace, "host": r.Host, "machine": r.Machine,
		"uid": r.UID} {
		if !name.MatchString(value) {
			return fmt.Errorf("owner record: %s %q must match %s", field, value, name)
		}
	}
	for field, value := range map[string]string{"plane": r.ManagementCluster, "order": r.Order} {
		if value != "" && !name.MatchString(value) {
			return fmt.Errorf("owner record: %s %q must match %s", field, value, name)
		}
	}
	return nil
}

// Check says whether the holder of ours may change a host that says holder: nil, *StaleError or *HeldError. The
// generation comes first: what is stale knows nothing, not even whether the claim is still its own.
func Check(ours, holder Record) error {
	switch {
	case holder.Generation > ours.Generation, sibling(ours, holder), outrun(ours, holder):
		return &StaleError{Ours: ours, Holder: holder}
	case holder.Released(), holder.UID == ours.UID:
		return nil
	}
	return &HeldError{Holder: holder}
}

// sibling says whether the holder is another management cluster that counted to our generation of our claim. Two that
// were restored from one backup, or moved from one source, both do; the first that the host hears of has it.
func sibling(ours, holder Record) bool {
	return holder.Generation == ours.Generation && ours.UID != "" && (holder.Released() || holder.UID == ours.UID) &&
		ours.ManagementCluster != "" && holder.ManagementCluster != "" && ours.ManagementCluster != holder.ManagementCluster
}

// outrun says whether the host has heard an order of our own generation, and plane, that we did not give.
func outrun(ours, holder Record) bool {
	return holder.Generation == ours.Generation && (holder.Released() || holder.UID == ours.UID) &&
		ours.ManagementCluster == holder.ManagementCluster &&
		holder.Order != "" && holder.Order != ours.Order && holder.Order != ours.Heard
}

// Acquire is the method form of the package's Acquire.
func (s Store) Acquire(ctx context.Context, host ssh.Host, record Record) error {
	if err := record.Validate(); err != nil {
		return err
	}
	return s.change(ctx, host, record, func(holder *Record) Record {
		next := record
		if holder != nil {
			next.Quarantine, next.later = holder.Quarantine, holder.later
		}
		return next
	})
}

// Isolate is the method form of the package's Isolate.
func (s Store) Isolate(ctx context.Context, host ssh.Host, record Record, why Quarantine) error {
	return s.change(ctx, host, record, func(holder *Record) Record {
		next := record
		if holder == nil || holder.Released() {
			next.Machine, next.UID = "", ""
		}
		if holder != nil {
			next.later = holder.later
		}
		next.Quarantine = plain(why)
		return next
	})
}

// plain bounds a quarantine and leaves out what would need an escape: scripts read the record as well.
func plain(why Quarantine) Quarantine {
	const longest = 1024
	why.Message = strings.NewReplacer(`"`, "'", `\`, "/", "\n", " ").Replace(why.Message)
	if len(why.Message) > longest {
		why.Message = strings.ToValidUTF8(why.Message[:longest], "")
	}
	return why
}

// Release is the method form of the package's Release.
func (s Store) Release(ctx context.Context, host ssh.Host, record Record) error {
	released := record
	released.Machine, released.UID, released.Quarantine = "", "", Quarantine{}
	return s.change(ctx, host, record, func(*Record) Record { return released })
}

// change reads the record, decides here, and writes there only if the record is still what was read: the comparison and
// the write happen under one lock on the host. next makes the new record of the present one, which is nil when there is
// none.
func (s Store) change(ctx context.Context, host ssh.Host, ours Record, next func(*Record) Record) error {
	for range 3 {
		raw, err := s.raw(ctx, host)
		if err != nil {
			return err
		}
		var holder *Record
		if raw != "" {
			if holder, err = Parse(raw); err != nil {
				return err
			}
			if err := Check(ours, *holder); err != nil {
				return err
			}
		}
		data, err := json.Marshal(next(holder))
		if err != nil {
			return err
		}
		if raw == string(data) {
			return nil
		}
		err = s.compareAndWrite(ctx, host, raw, string(data))
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	return errChanged
}

// changedCode is an exit code that nothing else in the script ends with.
const changedCode = 75

func (s Store) compareAndWrite(ctx context.Context, host ssh.Host, old, next string) error {
	script := fmt.Sprintf(`set -eu
umask 077
root=%s
file=$root/owner.json
mkdir -p "$root"
chmod 0700 "$root"
exec 8>"$root/owner.lock"
flock -w 10 8
[ "$(cat "$file" 2>/dev/null || :)" = %s ] || exit %d
printf '%%s\n' %s >"$root/owner.json.part"
sync "$root/owner.json.part"
mv -fT "$root/owner.json.part" "$file"
sync "$root"
`, ssh.Quote(s.root()), ssh.Quote(old), changedCode, ssh.Quote(next))
	_, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	var exit *ssh.ExitError
	if errors.As(err, &exit) && exit.Code == changedCode {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("writing the owner record: %w", err)
	}
	return nil
}

// Read is the method form of the package's Read.
func (s Store) Read(ctx context.Context, host ssh.Host) (*Record, error) {
	raw, err := s.raw(ctx, host)
	if err != nil || raw == "" {
		return nil, err
	}
	return Parse(raw)
}

// Parse reads a record as it lies on the host; the error is an *UnreadableError.
func Parse(raw string) (*Record, error) {
	var version struct{ Format int }
	var record Record
	if json.Unmarshal([]byte(raw), &version) == nil && version.Format > Format {
		return nil, &UnreadableError{Format: version.Format} // whatever else is in it
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(raw), &record) != nil || record.UID == "" && record.Generation < 1 ||
		json.Unmarshal([]byte(raw), &fields) != nil {
		return nil, &UnreadableError{}
	}
	for field := range reflect.TypeFor[Record]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		delete(fields, name)
	}
	if len(fields) > 0 {
		later, err := json.Marshal(fields)
		if err != nil {
			return nil, &UnreadableError{}
		}
		record.later = string(later)
	}
	return &record, nil
}

func (s Store) raw(ctx context.Context, host ssh.Host) (string, error) {
	script := fmt.Sprintf("f=%s\nif [ -e \"$f\" ]; then cat \"$f\"; fi\n", ssh.Quote(s.root()+"/owner.json"))
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return "", fmt.Errorf("reading the owner record: %w", err)
	}
	return strings.TrimRight(result.Stdout, "\n"), nil
}

func (s Store) root() string {
	if s.Root == "" {
		return run.DefaultRoot
	}
	return s.Root
}
