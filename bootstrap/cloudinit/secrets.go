// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import "github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"

// Secrets are the values of bootstrap data that nobody may be told: each line of the files and of the commands,
// passwords of users, and whatever else of it was called a secret or drawn at random. Data that cannot be parsed are a
// secret line by line. variables are what Parse is given; what they hold is none.
func Secrets(userData []byte, variables Variables) []string {
	values := redact.Words(string(userData))
	config, err := Parse(userData, variables)
	if err != nil {
		return append(values, string(userData))
	}
	for _, file := range config.Files {
		values = append(values, string(file.Content))
		values = append(values, redact.Words(string(file.Content))...)
	}
	for _, commands := range [][]Command{config.BootCommands, config.Commands} {
		for _, command := range commands {
			values = append(values, command.Shell)
			values = append(values, redact.Words(command.Shell)...)
		}
	}
	for _, user := range config.Users {
		values = append(values, user.Passwd, user.Gecos)
	}
	public := make([]string, 0, len(variables))
	for _, value := range variables {
		public = append(public, value)
	}
	return redact.Without(values, public...)
}
