package main

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"
)

// codec takes the messages that protoc-gen-go 1.28 generates, which the codec of Debian's grpc 1.33 does not.
type codec struct{}

func (codec) Marshal(v interface{}) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }
func (codec) Unmarshal(data []byte, v interface{}) error {
	return proto.Unmarshal(data, v.(proto.Message))
}
func (codec) Name() string { return "proto" }

func init() { encoding.RegisterCodec(codec{}) }
