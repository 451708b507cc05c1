// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

func parseUsers(node *yaml.Node) ([]User, error) {
	var entries []struct {
		Name, Passwd, Gecos, Homedir, Shell, Sudo word
		PrimaryGroup                              word `yaml:"primary_group"`
		Groups                                    yaml.Node
		Inactive                                  bool
		LockPasswd                                *bool  `yaml:"lock_passwd"`
		SSHAuthorizedKeys                         []word `yaml:"ssh_authorized_keys"`
	}
	if err := decode(node, &entries); err != nil {
		return nil, err
	}
	users := make([]User, 0, len(entries))
	for _, e := range entries {
		if !userName.MatchString(string(e.Name)) {
			return nil, fmt.Errorf("name %q must match %s", e.Name, userName)
		}
		user := User{
			Name: string(e.Name), Passwd: string(e.Passwd), Gecos: string(e.Gecos), HomeDir: string(e.Homedir),
			Shell:        string(e.Shell),
			PrimaryGroup: string(e.PrimaryGroup), Sudo: string(e.Sudo), Inactive: e.Inactive,
			LockPassword: e.LockPasswd == nil || *e.LockPasswd,
		}
		switch e.Groups.Kind {
		case yaml.ScalarNode:
			for group := range strings.SplitSeq(e.Groups.Value, ",") {
				if group = strings.TrimSpace(group); group != "" {
					user.Groups = append(user.Groups, group)
				}
			}
		case yaml.SequenceNode:
			for _, group := range e.Groups.Content {
				user.Groups = append(user.Groups, group.Value)
			}
		}
		for _, group := range user.Groups {
			if !userName.MatchString(group) {
				return nil, fmt.Errorf("user %s: group %q must match %s", user.Name, group, userName)
			}
		}
		for field, value := range map[string]string{"gecos": user.Gecos, "passwd": user.Passwd, "homedir": user.HomeDir,
			"shell": user.Shell, "sudo": user.Sudo, "primary_group": user.PrimaryGroup} {
			if strings.ContainsAny(value, "\n\x00") {
				return nil, fmt.Errorf("user %s: %s must be one line", user.Name, field)
			}
		}
		for _, key := range e.SSHAuthorizedKeys {
			user.SSHAuthorizedKeys = append(user.SSHAuthorizedKeys, strings.TrimSpace(string(key)))
		}
		users = append(users, user)
	}
	return users, nil
}
