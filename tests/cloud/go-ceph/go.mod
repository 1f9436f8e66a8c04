module skep.test/goceph

go 1.24.0

require (
	github.com/ceph/go-ceph v0.36.0 // indirect
	golang.org/x/sys v0.36.0 // indirect
)
