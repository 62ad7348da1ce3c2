module github.com/stickycas/stickycas/examples/go

go 1.22

require (
	github.com/stickycas/stickycas/gen/go v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240814211410-ddb44dafa142
	google.golang.org/grpc v1.67.1
	google.golang.org/protobuf v1.35.1
)

replace github.com/stickycas/stickycas/gen/go => ./gen
