// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfishtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	root     = "/redfish/v1/"
	systems  = "/redfish/v1/Systems"
	sessions = "/redfish/v1/SessionService/Sessions"
	reset    = "/Actions/ComputerSystem.Reset"
	info     = "/ResetActionInfo"
)

// object is a JSON object.
type object map[string]any

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	faults := s.faults
	s.mu.Unlock()
	if faults.Hang {
		<-r.Context().Done()
		return
	}
	if faults.Delay > 0 {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(faults.Delay):
		}
	}
	switch {
	case faults.Status != 0:
		s.fail(w, faults, faults.Status)
	case faults.Garbage != "":
		_, _ = io.WriteString(w, faults.Garbage)
	case faults.Huge:
		huge(w)
	case r.URL.Path == sessions && r.Method == http.MethodPost:
		s.openSession(w, r)
	case !s.admits(r):
		if !s.options.SessionsOnly {
			w.Header().Set("WWW-Authenticate", `Basic realm="bmc"`)
		}
		s.fail(w, faults, http.StatusUnauthorized)
	default:
		s.route(w, r, faults)
	}
}

func (s *Server) route(w http.ResponseWriter, r *http.Request, faults Faults) {
	path := r.URL.Path
	if r.Method == http.MethodDelete && strings.HasPrefix(path, sessions+"/") {
		s.mu.Lock()
		delete(s.sessions, strings.TrimPrefix(path, sessions+"/"))
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	switch path {
	case strings.TrimSuffix(root, "/"):
		http.Redirect(w, r, root, http.StatusPermanentRedirect)
		return
	case root:
		s.answer(w, object{"@odata.id": root, "RedfishVersion": "1.15.0", "Systems": object{"@odata.id": faults.LinkAway +
			systems}})
		return
	case systems:
		var members []object
		for _, name := range s.options.Systems {
			members = append(members, object{"@odata.id": systems + "/" + name})
		}
		s.answer(w, object{"Members@odata.count": len(members), "Members": members})
		return
	}
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, systems+"/"), "/")
	if !slices.Contains(s.options.Systems, name) {
		s.fail(w, faults, http.StatusNotFound)
		return
	}
	switch {
	case rest == "" && r.Method == http.MethodGet:
		s.show(w, name)
	case "/"+rest == info:
		s.answer(w, object{"Parameters": []object{{"Name": "ResetType", "AllowableValues": s.options.ResetTypes}}})
	case "/"+rest == reset && r.Method == http.MethodPost:
		s.order(w, r, name, faults)
	default:
		s.fail(w, faults, http.StatusNotFound)
	}
}

func (s *Server) show(w http.ResponseWriter, name string) {
	s.mu.Lock()
	s.readings++
	power, faults := s.powerOf(name), s.faults
	broken := s.ordered && faults.FailReadings > 0
	if broken {
		s.faults.FailReadings--
	}
	if faults.Flap && s.ordered {
		power = []string{"On", "Off"}[s.readings%2]
	}
	s.mu.Unlock()
	if broken {
		s.fail(w, faults, http.StatusServiceUnavailable)
		return
	}
	path := systems + "/" + name
	action := object{"target": path + reset}
	if s.options.InActionInfo {
		action["@Redfish.ActionInfo"] = path + info
	} else if len(s.options.ResetTypes) > 0 {
		action["ResetType@Redfish.AllowableValues"] = s.options.ResetTypes
	}
	uuid, serial, sku := s.options.Identify(name)
	s.answer(w, object{"@odata.id": path, "Id": name, "UUID": uuid, "SerialNumber": serial, "SKU": sku, "PowerState": power,
		"Actions": object{"#ComputerSystem.Reset": action}})
}

func (s *Server) order(w http.ResponseWriter, r *http.Request, name string, faults Faults) {
	var order struct{ ResetType string }
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&order); err != nil {
		s.fail(w, faults, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.orders = append(s.orders, order.ResetType)
	taken := len(s.options.ResetTypes) == 0 || slices.Contains(s.options.ResetTypes, order.ResetType)
	obeyed := taken && !faults.StayOn && !faults.Flap
	if taken {
		s.ordered = true
	}
	if obeyed && s.options.Computer == nil {
		s.carryOut(name, order.ResetType)
	}
	s.mu.Unlock()
	if !taken {
		s.fail(w, faults, http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	if obeyed && s.options.Computer != nil {
		_ = http.NewResponseController(w).Flush()
		s.acting.Go(func() { s.options.Computer.Order(order.ResetType) })
	}
}

// carryOut changes the power of a simulated computer.
func (s *Server) carryOut(name, order string) {
	switch order {
	case "ForceOff", "GracefulShutdown":
		s.power[name] = "Off"
	case "On", "ForceRestart", "PowerCycle":
		s.power[name] = "On"
	}
}

func (s *Server) admits(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		for _, known := range s.sessions {
			if known == token {
				return true
			}
		}
		return false
	}
	if r.URL.Path == root && r.Header.Get("Authorization") == "" {
		return true
	}
	user, password, ok := r.BasicAuth()
	if ok && !s.options.SessionsOnly {
		s.logins++
	}
	return ok && !s.options.SessionsOnly && user == User && password == Password
}

func (s *Server) openSession(w http.ResponseWriter, r *http.Request) {
	var login struct{ UserName, Password string }
	err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&login)
	s.mu.Lock()
	s.logins++
	id := fmt.Sprintf("%d", s.logins)
	token := "token-" + id
	faults := s.faults
	good := err == nil && login.UserName == User && login.Password == Password
	if good {
		s.sessions[id] = token
	}
	s.mu.Unlock()
	if !good {
		s.fail(w, faults, http.StatusUnauthorized)
		return
	}
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", sessions+"/"+id)
	w.WriteHeader(http.StatusCreated)
}

func (s *Server) fail(w http.ResponseWriter, faults Faults, status int) {
	message := "the request could not be carried out"
	if faults.Quote {
		message += " for " + User + " with " + Password
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"error": object{
		"code": "Base.1.8.GeneralError", "message": "see the extended information",
		"@Message.ExtendedInfo": []object{{"MessageId": "Base.1.8.GeneralError", "Message": message}},
	}})
}

func (s *Server) answer(w http.ResponseWriter, o object) {
	s.mu.Lock()
	if padding := s.faults.Padding; padding > 0 {
		o["Oem"] = strings.Repeat("x", padding)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

// huge writes until the reader has enough.
func huge(w io.Writer) {
	line := []byte(`{"Name":"` + strings.Repeat("x", 64<<10) + `"},`)
	for range 1 << 12 {
		if _, err := w.Write(line); err != nil {
			return
		}
	}
}
