// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"gopkg.in/yaml.v3"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	capi "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func ptr[T any](v T) *T { return &v }

func zipped(text string) string {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(buf.Bytes())
}

// everything is each field of KubeadmConfig that reaches the writer and that Quoin executes.
func everything() capi.BaseUserData {
	return capi.BaseUserData{
		BootCommands: []string{"echo \"boot\"", "mkdir -p /x"},
		PreKubeadmCommands: []string{"export IP=$(hostname -i)", "sed -i \"s/A/$IP/\" /run/kubeadm/kubeadm-join-config.yaml",
			"cat <<EOF >/tmp/x\nline 'one'\nEOF"},
		PostKubeadmCommands: []string{"kubeadm init phase upload-certs"},
		AdditionalFiles: []bootstrapv1.File{
			{Path: "/etc/plain", Content: "one\ntwo\n", Owner: "root:adm", Permissions: "0600"},
			{Path: "/etc/b64", Content: base64.StdEncoding.EncodeToString([]byte{0, 1, 2}), Encoding: bootstrapv1.Base64},
			{Path: "/etc/gz", Content: zipped("zipped text"), Encoding: bootstrapv1.GzipBase64, Append: ptr(true)},
			{Path: "/etc/name", Content: "{{ ds.meta_data.local_hostname }} and {{ '{{' }}"},
		},
		Users: []bootstrapv1.User{{Name: "ann", Gecos: "Ann", Groups: "adm, sudo", HomeDir: "/home/ann", Shell: "/bin/sh",
			Passwd:       "$6$hash",
			LockPassword: ptr(false), Sudo: "ALL=(ALL) NOPASSWD:ALL", SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA ann",
				"ssh-ed25519 BBBB"}}},
		NTP:    &bootstrapv1.NTP{Enabled: ptr(true), Servers: []string{"10.0.0.1", "time.example"}},
		Mounts: []bootstrapv1.MountPoints{{"LABEL=data", "/data"}, {"sdb1", "/srv", "ext4"}},
		DiskSetup: &bootstrapv1.DiskSetup{Partitions: []bootstrapv1.Partition{{Device: "/dev/sdb", Layout: ptr(true)}},
			Filesystems: []bootstrapv1.Filesystem{{Device: "/dev/sdb", Filesystem: "ext4", Label: "data", Partition: "1"}}},
		KubeadmVerbosity: "--v 5",
	}
}

var host = cloudinit.InstanceData("node-1", "uid-1", "")

func certificates() secret.Certificates {
	certs := secret.NewCertificatesForInitialControlPlane(nil)
	if err := certs.Generate(); err != nil {
		panic(err)
	}
	return certs
}

func kinds(config *cloudinit.Config) []cloudinit.Kind {
	var out []cloudinit.Kind
	for _, c := range config.Commands {
		out = append(out, c.Kind)
	}
	return out
}

func file(g *WithT, config *cloudinit.Config, path string) cloudinit.File {
	for _, f := range config.Files {
		if f.Path == path {
			return f
		}
	}
	g.Expect(config.Files).To(BeEmpty(), "no file %s", path)
	return cloudinit.File{}
}

func checkEverything(g *WithT, config *cloudinit.Config) {
	plain := file(g, config, "/etc/plain")
	g.Expect(string(plain.Content)).To(HavePrefix("one\ntwo\n"))
	g.Expect(plain.Owner).To(Equal("root:adm"))
	g.Expect(plain.Mode).To(Equal(os.FileMode(0o600)))
	g.Expect(file(g, config, "/etc/b64").Content).To(Equal([]byte{0, 1, 2}))
	gz := file(g, config, "/etc/gz")
	g.Expect(string(gz.Content)).To(Equal("zipped text"))
	g.Expect(gz.Append).To(BeTrue())
	g.Expect(string(file(g, config, "/etc/name").Content)).To(HavePrefix("node-1 and {{"))
	g.Expect(config.BootCommands).To(HaveLen(2))
	g.Expect(config.BootCommands[0].Shell).To(Equal(`echo "boot"`))
	g.Expect(config.Users).To(HaveLen(1))
	g.Expect(config.Users[0]).To(Equal(cloudinit.User{Name: "ann", Gecos: "Ann", Groups: []string{"adm", "sudo"},
		HomeDir: "/home/ann", Shell: "/bin/sh",
		Passwd: "$6$hash", LockPassword: false, Sudo: "ALL=(ALL) NOPASSWD:ALL",
		SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA ann", "ssh-ed25519 BBBB"}}))
	g.Expect(config.NTP).To(Equal(&cloudinit.NTP{Enabled: true, Servers: []string{"10.0.0.1", "time.example"}}))
	g.Expect(config.Mounts).To(Equal([][]string{{"LABEL=data", "/data"}, {"/dev/sdb1", "/srv", "ext4"}}))
	g.Expect(config.Commands[2].Shell).To(Equal("cat <<EOF >/tmp/x\nline 'one'\nEOF"))
}

func TestInitControlPlane(t *testing.T) {
	g := NewWithT(t)
	data, err := capi.NewInitControlPlane(&capi.ControlPlaneInput{BaseUserData: everything(), Certificates: certificates(),
		ClusterConfiguration: "kind: ClusterConfiguration\nname: a",
		InitConfiguration:    "kind: InitConfiguration\nnode: '{{ ds.meta_data.hostname }}'"})
	g.Expect(err).NotTo(HaveOccurred())
	config, err := cloudinit.Parse(data, host)
	g.Expect(err).NotTo(HaveOccurred())
	checkEverything(g, config)
	g.Expect(kinds(config)).To(Equal([]cloudinit.Kind{cloudinit.Plain, cloudinit.Plain, cloudinit.Plain,
		cloudinit.KubeadmInit, cloudinit.Plain}))
	g.Expect(string(file(g, config, "/etc/kubernetes/pki/ca.crt").Content)).To(ContainSubstring("BEGIN CERTIFICATE"))
	g.Expect(file(g, config, "/etc/kubernetes/pki/ca.key").Mode).To(Equal(os.FileMode(0o600)))
	kubeadm := string(file(g, config, "/run/kubeadm/kubeadm.yaml").Content)
	g.Expect(kubeadm).To(Equal("---\nkind: ClusterConfiguration\nname: a\n---\nkind: InitConfiguration\nnode: 'node-1'\n"))

	files, steps, err := config.Steps(cloudinit.Options{
		KubeadmArgs: []string{"--ignore-preflight-errors=SystemVerification"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(len(config.Files)))
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
		g.Expect(s.Once).To(Equal(s.Name == "kubeadm-init"), s.Name)
		g.Expect(s.Secret).To(Equal(s.Name == "users"), s.Name)
	}
	g.Expect(names).To(Equal([]string{"bootcmd", "write-files", "disk-setup", "fs-setup", "mounts", "users", "ntp",
		"pre-kubeadm", "check-clock", "kubeadm-init", "forget-secrets", "post-kubeadm"}))
	g.Expect(steps[9].Script).To(ContainSubstring("kubeadm init '--ignore-preflight-errors=SystemVerification' --config " +
		"/run/kubeadm/kubeadm.yaml --v 5 && echo success > /run/cluster-api/bootstrap-success.complete"))
	for _, s := range steps {
		g.Expect(s.Script).NotTo(ContainSubstring("BEGIN"), "keys travel as files")
	}
}

func TestJoin(t *testing.T) {
	g := NewWithT(t)
	cp, err := capi.NewJoinControlPlane(&capi.ControlPlaneJoinInput{BaseUserData: everything(),
		Certificates: certificates(), JoinConfiguration: "kind: JoinConfiguration"})
	g.Expect(err).NotTo(HaveOccurred())
	worker, err := capi.NewNode(&capi.NodeInput{BaseUserData: everything(), JoinConfiguration: "kind: JoinConfiguration"})
	g.Expect(err).NotTo(HaveOccurred())
	for _, data := range [][]byte{cp, worker} {
		config, err := cloudinit.Parse(data, host)
		g.Expect(err).NotTo(HaveOccurred())
		checkEverything(g, config)
		g.Expect(config.Commands[3].Kind).To(Equal(cloudinit.KubeadmJoin))
		g.Expect(config.Commands[3].Once()).To(BeTrue())
		g.Expect(string(file(g, config, "/run/kubeadm/kubeadm-join-config.yaml").Content)).
			To(ContainSubstring("kind: JoinConfiguration\n"))
		_, steps, err := config.Steps(cloudinit.Options{})
		g.Expect(err).NotTo(HaveOccurred())
		// The user's commands change the join configuration, so it cannot be made again after a reboot.
		g.Expect(steps[9].Name).To(Equal("kubeadm-join"))
		g.Expect(steps[9].Script).To(ContainSubstring("quoin_fail '/run/kubeadm/kubeadm-join-config.yaml is gone"))
		g.Expect(steps[9].Script).To(ContainSubstring(`/run/cluster-api/placeholder' 0640`))
	}
}

func TestTheSmallestWorker(t *testing.T) {
	g := NewWithT(t)
	data, err := capi.NewNode(&capi.NodeInput{JoinConfiguration: "kind: JoinConfiguration"})
	g.Expect(err).NotTo(HaveOccurred())
	config, err := cloudinit.Parse(data, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kinds(config)).To(Equal([]cloudinit.Kind{cloudinit.KubeadmJoin}))
	g.Expect(config.NTP).To(BeNil())
}

// A later version of the provider that emits more must be looked at: the two lists below are all there is today.
func TestEveryDirectiveOfTheProviderIsParsed(t *testing.T) {
	g := NewWithT(t)
	in := everything()
	set := reflect.ValueOf(in)
	for i := range set.NumField() {
		switch name := set.Type().Field(i).Name; name {
		case "Header", "WriteFiles", "ControlPlane", "KubeadmCommand", "SentinelFileCommand", "KubernetesVersion":
			// Filled in by the provider itself.
		default:
			g.Expect(set.Field(i).IsZero()).To(BeFalse(), "%s reaches the writer and is not tested", name)
		}
	}
	data, err := capi.NewNode(&capi.NodeInput{BaseUserData: in, JoinConfiguration: "kind: JoinConfiguration"})
	g.Expect(err).NotTo(HaveOccurred())
	var directives map[string]any
	g.Expect(yaml.Unmarshal(data, &directives)).To(Succeed())
	g.Expect(slices.Sorted(maps.Keys(directives))).
		To(Equal([]string{"bootcmd", "disk_setup", "fs_setup", "mounts", "ntp", "runcmd", "users", "write_files"}))
	config, err := cloudinit.Parse(data, host)
	g.Expect(err).NotTo(HaveOccurred())
	parsed := reflect.ValueOf(*config)
	for i := range parsed.NumField() {
		if name := parsed.Type().Field(i).Name; name != "Hostname" {
			g.Expect(parsed.Field(i).IsZero()).To(BeFalse(), name)
		}
	}
}

func TestDiskSetupOfTheProvider(t *testing.T) {
	g := NewWithT(t)
	in := capi.BaseUserData{DiskSetup: &bootstrapv1.DiskSetup{
		Partitions: []bootstrapv1.Partition{
			{Device: "/dev/sdb", Layout: ptr(true), Overwrite: ptr(true), TableType: "gpt"},
			{Device: "/dev/sdc", Layout: ptr(false)},
			{Device: "/dev/sdd", TableType: "gpt", DiskLayout: []bootstrapv1.PartitionSpec{{Percentage: 20,
				PartitionType: bootstrapv1.PartitionTypeLVM},
				{Percentage: 30}, {Percentage: 5, PartitionType: "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"}}},
			{Device: "/dev/sde", DiskLayout: []bootstrapv1.PartitionSpec{{Percentage: 50,
				PartitionType: bootstrapv1.PartitionTypeFat32},
				{Percentage: 50, PartitionType: bootstrapv1.PartitionTypeLinuxExtended}}},
		},
		Filesystems: []bootstrapv1.Filesystem{
			{Device: "/dev/sdb", Filesystem: "ext4", Label: "None", Partition: "auto|any", Overwrite: ptr(false),
				ReplaceFS: "ntfs"},
			{Device: "/dev/sdd", Filesystem: "xfs", Label: "b", Partition: "2", ExtraOpts: []string{"-m", "crc=1"}},
		},
	}}
	data, err := capi.NewNode(&capi.NodeInput{BaseUserData: in})
	g.Expect(err).NotTo(HaveOccurred())
	config, err := cloudinit.Parse(data, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.PartitionTables).To(Equal([]cloudinit.PartitionTable{
		{Device: "/dev/sdb", GPT: true, Overwrite: true, Partitions: []cloudinit.Partition{{Percent: 100}}},
		{Device: "/dev/sdc"},
		{Device: "/dev/sdd", GPT: true, Partitions: []cloudinit.Partition{{Percent: 20,
			Type: "E6D6D379-F507-44C2-A23C-238F2A3DF928"}, {Percent: 30},
			{Percent: 5, Type: "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"}}},
		{Device: "/dev/sde", Partitions: []cloudinit.Partition{{Percent: 50, Type: "0c"}, {Percent: 50, Type: "85"}}},
	}))
	g.Expect(config.FileSystems).To(Equal([]cloudinit.FileSystem{
		{Type: "ext4", Device: "/dev/sdb", Partition: "auto", ReplaceFS: "ntfs"},
		{Type: "xfs", Label: "b", Device: "/dev/sdd", Partition: "2", ExtraOptions: []string{"-m", "crc=1"}},
	}))

	in.DiskSetup.Partitions = []bootstrapv1.Partition{{Device: "/dev/sdb"}}
	data, err = capi.NewNode(&capi.NodeInput{BaseUserData: in})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = cloudinit.Parse(data, host)
	g.Expect(err).To(MatchError(ContainSubstring("set layout or diskLayout")), "the provider writes <nil> for it")
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ data, want string }{
		"unknown directive": {"#cloud-config\napt:\n  x: y\n", `"apt" is not executed by Quoin`},
		"unknown variable": {"## template: jinja\n#cloud-config\nruncmd:\n- echo {{ ds.meta_data.region }}\n",
			"{{ ds.meta_data.region }}, which is not known"},
		"filter": {"## template: jinja\n#cloud-config\nruncmd:\n- echo {{ v1.local_hostname | upper }}\n",
			"understands only plain names"},
		"statement":        {"## template: jinja\n#cloud-config\n{% if x %}\n", "jinja statement"},
		"ignition":         {`{"ignition":{}}`, "spec.format"},
		"script":           {"#!/bin/sh\necho\n", "#cloud-config"},
		"relative path":    {"#cloud-config\nwrite_files:\n- path: etc/x\n", "plain absolute path"},
		"our directory":    {"#cloud-config\nwrite_files:\n- path: /var/lib/quoin/owner.json\n", "Quoin's own directory"},
		"bad mode":         {"#cloud-config\nwrite_files:\n- path: /x\n  permissions: rw\n", "octal"},
		"bad base64":       {"#cloud-config\nwrite_files:\n- path: /x\n  encoding: b64\n  content: '***'\n", "not base64"},
		"unknown field":    {"#cloud-config\nwrite_files:\n- path: /x\n  source: {uri: y}\n", "field source not found"},
		"unknown encoding": {"#cloud-config\nwrite_files:\n- path: /x\n  encoding: rot13\n", "rot13"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cloudinit.Parse([]byte(tc.data), host)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.want)))
		})
	}
}

func TestSmallForms(t *testing.T) {
	g := NewWithT(t)
	config, err := cloudinit.Parse([]byte("#cloud-config\nhostname: short\nfqdn: long.example\nusers: "+
		"[]\nntp:\nwrite_files:\n- {path: /x, permissions: 0750}\n"+
		"runcmd:\n- [ls, -l, \"a b\"]\n- [/usr/bin/kubeadm, join, --config, x]\n- kubeadm -v=5 init\n- echo ${#x}\n- sudo "+
		"kubeadm joined\n"), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Hostname).To(Equal("long.example"))
	g.Expect(config.Files[0].Mode).To(Equal(os.FileMode(0o750)))
	g.Expect(config.Commands[0].Shell).To(Equal("ls -l 'a b'"))
	g.Expect(kinds(config)).To(Equal([]cloudinit.Kind{cloudinit.Plain, cloudinit.KubeadmJoin, cloudinit.KubeadmInit,
		cloudinit.Plain, cloudinit.Plain}))
}

// The steps run for real here: files, appended files, shared shell state, and a failure that names its command.
func TestStepsOnAHost(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	runner := run.Runner{Root: filepath.Join(dir, "root"), Starter: sshtest.Setsid{Dir: dir}}
	local := &sshtest.Local{}
	plan := func(id, text string) run.Status {
		config, err := cloudinit.Parse([]byte(strings.ReplaceAll(text, "@", dir)), host)
		g.Expect(err).NotTo(HaveOccurred())
		files, steps, err := config.Steps(cloudinit.Options{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(runner.Start(context.Background(), local, run.Plan{ID: id, Files: files, Steps: steps})).To(Succeed())
		var status run.Status
		g.Eventually(func() bool {
			status, err = runner.Poll(context.Background(), local, id)
			return err == nil && status.Phase.Final()
		}, "1m", "20ms").Should(BeTrue())
		return status
	}
	owner := "root:root"
	if os.Getuid() != 0 {
		t.Skip("files are given to root")
	}
	g.Expect(os.WriteFile(filepath.Join(dir, "log"), []byte("old\n"), 0o600)).To(Succeed())
	text := `#cloud-config
write_files:
- {path: @/sub/plain, owner: "` + owner + `", permissions: '0640', content: "text\n"}
- {path: @/log, append: true, content: "new\n"}
bootcmd:
- mkdir @/boot
runcmd:
- export A=exported; b=shared
- echo "$A $b" >@/first
- PATH=@:$PATH
- printf '#!/bin/sh\necho "$* $A" >@/kubeadm.called\n' >@/kubeadm; chmod +x @/kubeadm
- kubeadm join --config /run/x && echo success > @/sentinel
- echo $A >@/last; mkdir @/for-all; umask >@/umask
`
	status := plan("good", text)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	for path, want := range map[string]string{"sub/plain": "text\n", "log": "old\nnew\n", "first": "exported shared\n",
		"kubeadm.called": "join --config /run/x exported\n", "sentinel": "success\n", "last": "exported\n",
		"umask": "0022\n"} {
		got, err := os.ReadFile(filepath.Join(dir, path))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(got)).To(Equal(want), path)
	}
	info, _ := os.Stat(filepath.Join(dir, "sub/plain"))
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o640)))
	for path, want := range map[string]os.FileMode{"first": 0o644, "boot": 0o755, "kubeadm.called": 0o644,
		"for-all": 0o755} {
		info, err := os.Stat(filepath.Join(dir, path))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(want), "%s, as a command of cloud-init would leave it", path)
	}

	status = plan("bad",
		"#cloud-config\nruncmd:\n- true\n- sh -c 'echo no disk >&2; exit 4'\n- touch @/never\n- kubeadm join\n")
	g.Expect(status.Phase).To(Equal(run.Failed))
	g.Expect(status.Step).To(Equal("pre-kubeadm"))
	g.Expect(status.Message).To(ContainSubstring("command 2 of 3 in preKubeadmCommands ended with code 4"))
	g.Expect(status.Tail).To(ContainSubstring("no disk"))
}
