// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// maxQuoted bounds what is quoted of a BMC's text, in runes.
const maxQuoted = 200

// ResetType is a value of the action ComputerSystem.Reset.
type ResetType string

// The reset types that are used.
const (
	ResetOn           ResetType = "On"
	ResetForceOff     ResetType = "ForceOff"
	ResetForceRestart ResetType = "ForceRestart"
	ResetPowerCycle   ResetType = "PowerCycle"
)

type link struct {
	ID string `json:"@odata.id"`
}

// computer is what is read of a ComputerSystem.
type computer struct {
	power PowerState
	// uuid, serial and sku are what the service calls it; some makers have in the SKU what the firmware has as the serial
	// number.
	uuid, serial, sku string
	// target of the Reset action.
	target string
	// allowed reset types; nil when the service does not list them here, and then info may name a resource that does.
	allowed []ResetType
	info    string
}

// parseRoot reads the link to the collection of systems from a service root.
func parseRoot(data []byte) (string, error) {
	var root struct{ Systems link }
	if err := decode(data, &root); err != nil {
		return "", err
	}
	if root.Systems.ID == "" {
		return "", errors.New("its service root has no Systems")
	}
	return root.Systems.ID, checkLink(root.Systems.ID)
}

// parseSystems reads the links of a collection. more says that there are further pages.
func parseSystems(data []byte) (systems []string, more bool, err error) {
	var collection struct {
		Members []link
		Next    string `json:"Members@odata.nextLink"`
	}
	if err := decode(data, &collection); err != nil {
		return nil, false, err
	}
	for _, member := range collection.Members {
		if err := checkLink(member.ID); err != nil {
			return nil, false, err
		}
		systems = append(systems, member.ID)
	}
	return systems, collection.Next != "", nil
}

func parseComputer(data []byte) (computer, error) {
	var system struct {
		PowerState              string
		UUID, SerialNumber, SKU string
		Actions                 struct {
			Reset struct {
				Target  string   `json:"target"`
				Allowed []string `json:"ResetType@Redfish.AllowableValues"`
				Info    string   `json:"@Redfish.ActionInfo"`
			} `json:"#ComputerSystem.Reset"`
		}
	}
	if err := decode(data, &system); err != nil {
		return computer{}, err
	}
	c := computer{power: PowerState(system.PowerState), target: system.Actions.Reset.Target,
		info: system.Actions.Reset.Info,
		uuid: printable(system.UUID), serial: printable(system.SerialNumber), sku: printable(system.SKU)}
	if !slices.Contains([]PowerState{On, Off, PoweringOn, PoweringOff, Paused}, c.power) {
		return computer{}, fmt.Errorf("its PowerState is %q", printable(system.PowerState))
	}
	for _, optional := range []string{c.target, c.info} {
		if optional == "" {
			continue
		}
		if err := checkLink(optional); err != nil {
			return computer{}, err
		}
	}
	c.allowed = resetTypes(system.Actions.Reset.Allowed)
	return c, nil
}

// parseActionInfo reads the reset types from the resource that describes the action.
func parseActionInfo(data []byte) ([]ResetType, error) {
	var info struct {
		Parameters []struct {
			Name            string
			AllowableValues []string
		}
	}
	if err := decode(data, &info); err != nil {
		return nil, err
	}
	for _, parameter := range info.Parameters {
		if parameter.Name == "ResetType" {
			return resetTypes(parameter.AllowableValues), nil
		}
	}
	return nil, nil
}

func resetTypes(values []string) []ResetType {
	var out []ResetType
	for _, value := range values {
		if len(out) == 32 {
			break
		}
		out = append(out, ResetType(printable(value)))
	}
	return out
}

// parseError reads what the service says about a failure; empty when it says nothing that can be read. Secrets are
// taken out of the whole text: half of one, where the text is cut off, would not be recognized any more.
func parseError(data []byte, credentials Credentials) string {
	var failure struct {
		Error struct {
			Message  string `json:"message"`
			Extended []struct {
				Message string
			} `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &failure) != nil {
		return ""
	}
	// The extended information says what is wrong; the message often only that something is.
	for _, info := range failure.Error.Extended {
		if info.Message != "" {
			return printable(credentials.strip(info.Message))
		}
	}
	return printable(credentials.strip(failure.Error.Message))
}

func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("its answer cannot be read as JSON: %s", printable(err.Error()))
	}
	return nil
}

// checkLink says whether a link stays within the service: the credentials go wherever a link leads.
func checkLink(path string) error {
	parsed, err := url.Parse(path)
	if err != nil || parsed.Scheme != "" || parsed.Host != "" || parsed.Opaque != "" || parsed.Fragment != "" ||
		parsed.RawQuery != "" ||
		!strings.HasPrefix(parsed.Path, "/redfish/v1/") || strings.Contains(parsed.Path, "..") {
		return fmt.Errorf("its link %q does not lead into the service", printable(path))
	}
	return nil
}

// printable bounds a text of the BMC and takes out what could garble a terminal.
func printable(text string) string {
	runes := []rune(strings.ToValidUTF8(text[:min(len(text), 8*maxQuoted)], ""))
	out := make([]rune, 0, min(len(runes), maxQuoted))
	for _, r := range runes {
		if len(out) == maxQuoted {
			break
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		out = append(out, r)
	}
	return strings.TrimSpace(string(out))
}
