// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/firmware"
)

// PowerOff turns the computer off the hard way, and returns when the BMC has said Off twice in a row. Without that, it
// returns an error: what may still run is not off, whatever the BMC answered to the order.
func (c *Client) PowerOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.target.ChangeTimeout)
	defer cancel()
	system, err := c.readSystem(ctx)
	if err != nil {
		return err
	}
	if system.power != Off {
		if err := c.reset(ctx, system, ResetForceOff); err != nil {
			return err
		}
	}
	return c.await(ctx, Off, 2)
}

// PowerOn turns the computer on, and returns when the BMC says On.
func (c *Client) PowerOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.target.ChangeTimeout)
	defer cancel()
	system, err := c.readSystem(ctx)
	if err != nil {
		return err
	}
	if system.power == On {
		return nil
	}
	if err := c.reset(ctx, system, ResetOn); err != nil {
		return err
	}
	return c.await(ctx, On, 1)
}

// PowerCycle makes the computer boot, by whichever way its BMC has: PowerCycle, ForceRestart, or off and on. A computer
// that is off is turned on. It returns when the BMC says On.
func (c *Client) PowerCycle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.target.ChangeTimeout)
	defer cancel()
	system, err := c.readSystem(ctx)
	if err != nil {
		return err
	}
	if system.power == Off {
		return c.PowerOn(ctx)
	}
	allowed, err := c.allowed(ctx, system)
	if err != nil {
		return err
	}
	for _, kind := range []ResetType{ResetPowerCycle, ResetForceRestart} {
		if slices.Contains(allowed, kind) {
			if err := c.reset(ctx, system, kind); err != nil {
				return err
			}
			return c.await(ctx, On, 1)
		}
	}
	if allowed == nil {
		// Nothing is listed. ForceRestart is what nearly every service has.
		if err := c.reset(ctx, system, ResetForceRestart); err != nil {
			return err
		}
		return c.await(ctx, On, 1)
	}
	if err := c.PowerOff(ctx); err != nil {
		return err
	}
	return c.PowerOn(ctx)
}

// readSystem reads the computer, which it looks for the first time.
func (c *Client) readSystem(ctx context.Context) (computer, error) {
	path, err := c.systemPath(ctx)
	if err != nil {
		return computer{}, err
	}
	const action = "reading the power state"
	data, err := c.get(ctx, action, path)
	if err != nil {
		return computer{}, err
	}
	system, err := parseComputer(data)
	if err != nil {
		return computer{}, c.misbehaved(action, err.Error())
	}
	return system, c.identify(path, system)
}

// identify returns an *IdentityError unless the computer is the machine that is meant.
func (c *Client) identify(path string, system computer) error {
	meant := c.target.Machine
	e := &IdentityError{Address: c.target.Address, System: path, Meant: meant, UUID: system.uuid, Serial: system.serial,
		SKU: system.sku}
	says := func(word string) bool { return word != "" && strings.EqualFold(strings.TrimSpace(meant.ID), word) }
	uuid := firmware.SameUUID(meant.UUID, system.uuid)
	otherUUID := !uuid && firmware.UUID(meant.UUID) != "" && firmware.UUID(system.uuid) != ""
	serial := firmware.SameSerial(meant.Serial, system.serial) || firmware.SameSerial(meant.Serial, system.sku)
	otherSerial := !serial && firmware.Serial(meant.Serial) != "" && firmware.Serial(system.serial) != ""
	var same bool
	switch {
	case meant.ID != "":
		// A person knows better than a firmware that says one of both wrongly, but was mistaken where neither agrees.
		same = (says(system.uuid) || says(system.serial) || says(system.sku)) && (!otherUUID || !otherSerial)
		e.Differs = true
	case otherUUID:
		// There are BMCs that say another UUID than SMBIOS: with the serial number a person may say that this is one.
		e.Differs = !serial
	default:
		// Boards of a make may have one UUID, but no two machines a serial number.
		same, e.Differs = (uuid || serial) && !otherSerial, otherSerial
	}
	switch {
	case !same:
		return e
	case meant.Shared != "" && !serial:
		e.Differs = !uuid
		return e
	}
	return nil
}

func (c *Client) systemPath(ctx context.Context) (string, error) {
	c.mu.Lock()
	path := c.system
	c.mu.Unlock()
	if path != "" {
		return path, nil
	}
	if path = c.target.System; path == "" {
		var err error
		if path, err = c.onlySystem(ctx); err != nil {
			return "", err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.system = path
	return path, nil
}

func (c *Client) onlySystem(ctx context.Context) (string, error) {
	const action = "looking for the computer"
	data, err := c.get(ctx, action, "/redfish/v1/")
	if err != nil {
		return "", err
	}
	collection, err := parseRoot(data)
	if err != nil {
		return "", c.misbehaved(action, err.Error())
	}
	if data, err = c.get(ctx, action, collection); err != nil {
		return "", err
	}
	systems, more, err := parseSystems(data)
	if err != nil {
		return "", c.misbehaved(action, err.Error())
	}
	if len(systems) != 1 || more {
		const shown = 8
		if len(systems) > shown {
			systems = append(systems[:shown:shown], "and more")
		}
		return "", &SystemsError{Address: c.target.Address, Systems: systems}
	}
	return systems[0], nil
}

// allowed are the reset types that the service takes; nil when it does not list them.
func (c *Client) allowed(ctx context.Context, system computer) ([]ResetType, error) {
	if system.allowed != nil || system.info == "" {
		return system.allowed, nil
	}
	const action = "reading the reset types"
	data, err := c.get(ctx, action, system.info)
	if err != nil {
		return nil, err
	}
	types, err := parseActionInfo(data)
	if err != nil {
		return nil, c.misbehaved(action, err.Error())
	}
	return types, nil
}

// reset gives the order. That it was taken says nothing about the power yet.
func (c *Client) reset(ctx context.Context, system computer, kind ResetType) error {
	action := fmt.Sprintf("ordering the reset %s", kind)
	if system.target == "" {
		return &RefusedError{Address: c.target.Address, Action: action,
			Problem: "the system has no action ComputerSystem.Reset"}
	}
	types, err := c.allowed(ctx, system)
	if err != nil {
		return err
	}
	if types != nil && !slices.Contains(types, kind) {
		return &RefusedError{Address: c.target.Address, Action: action, Problem: fmt.Sprintf("its reset types are %s",
			joined(types))}
	}
	if kind != ResetOn && c.target.Due != nil {
		if err := c.target.Due(ctx); err != nil {
			return err
		}
	}
	_, err = c.call(ctx, request{action: action, method: http.MethodPost, path: system.target,
		body: map[string]ResetType{"ResetType": kind}})
	return err
}

// await reads the power state at intervals until it was want so many times in a row. A failed reading begins the row
// anew: a BMC that stumbles while it changes the power is common, and only the deadline makes it an error.
func (c *Client) await(ctx context.Context, want PowerState, times int) error {
	ticker := time.NewTicker(c.target.Interval)
	defer ticker.Stop()
	action := fmt.Sprintf("reading back the power state %s", want)
	var row int
	var flapped bool
	var last PowerState
	var failed error
	for {
		state, err := c.State(ctx)
		switch {
		case err != nil && lasting(err):
			return err
		case err != nil && ctx.Err() == nil:
			row, failed = 0, err
		case err == nil && state == want:
			if row++; row == times {
				return nil
			}
			last, failed = state, nil
		case err == nil:
			flapped = flapped || last == want
			row, last, failed = 0, state, nil
		}
		select {
		case <-ticker.C:
			continue
		case <-ctx.Done():
		}
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return fmt.Errorf("%s: %w", action, ctx.Err())
		case failed != nil:
			return fmt.Errorf("%s: %w", action, failed)
		case flapped:
			return c.misbehaved(action, fmt.Sprintf("it said %s, and then something else again", want))
		case last == "":
			return &UnreachableError{Address: c.target.Address, Action: action, Err: ctx.Err()}
		}
		return c.misbehaved(action, fmt.Sprintf("it took the order, and says %s all the while", last))
	}
}

// lasting errors do not go away by reading again.
func lasting(err error) bool {
	var authentication *AuthenticationError
	var certificate *CertificateError
	var refused *RefusedError
	var identity *IdentityError
	return errors.As(err, &identity) || errors.As(err, &authentication) || errors.As(err, &certificate) ||
		errors.As(err, &refused)
}

func joined(types []ResetType) string {
	if len(types) == 0 {
		return "none"
	}
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}
