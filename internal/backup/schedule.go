// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule says when the next snapshot is wanted after a time. Times are UTC.
type Schedule struct{ schedule cron.Schedule }

// cronFields are minute, hour, day of month, month and day of week: neither seconds nor @every.
var cronFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// ParseSchedule reads cron's five fields.
func ParseSchedule(raw string) (Schedule, error) {
	// The parser would take a time zone in front, and panics about half of one.
	if strings.Contains(raw, "=") {
		return Schedule{}, errors.New("it must not name a time zone: times are UTC")
	}
	parsed, err := cronFields.Parse(raw)
	if err != nil {
		return Schedule{}, fmt.Errorf("it is not five fields of cron, such as \"0 */6 * * *\": %w", err)
	}
	if parsed.Next(time.Unix(0, 0).UTC()).IsZero() {
		return Schedule{}, errors.New("it never comes: no month has that day")
	}
	return Schedule{parsed}, nil
}

// Next is the first time after another.
func (s Schedule) Next(after time.Time) time.Time { return s.schedule.Next(after.UTC()) }
