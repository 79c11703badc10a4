// Sealed messages: what a control call carries arrives as it was sent, or not at all.
#ifndef WEFT_DISTRIBUTED_GRPC_SEAL_H_
#define WEFT_DISTRIBUTED_GRPC_SEAL_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message_lite.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/grpc/weft.pb.h"
#include "platform/status_macros.h"

namespace weft {

// The bytes of a message of weft.proto with their checksum (XXH3-64), in which the type of the
// message is included. It finds damage, which TCP's own 16 bits let pass now and then: a changed
// number of steps, rate or name of a variable would otherwise train other weights in silence. It
// proves nothing against an attacker.
rpc::Sealed Seal(const google::protobuf::MessageLite& message);

// Reads a sealed message into `message`. DataLoss where its bytes or its checksum have changed, or
// where it is a message of another type.
absl::Status Unseal(const rpc::Sealed& sealed, google::protobuf::MessageLite& message);

// What a version of the program says and understands, in 16 hexadecimal digits: of the messages of
// the control calls and of partitions with their fields, and of the frames of data streams. Two
// builds whose messages differ have different ones, whatever they are called.
std::string WireFormat();
// The same of any declarations of messages.
std::string WireFormatOf(const std::vector<const google::protobuf::FileDescriptor*>& files);
// "graph_runner 0.1 (wire format 0123456789abcdef)": what two processes must have alike.
std::string HandshakeVersion(const std::string& version);

// The next message of a stream of sealed ones. DataLoss where there is none, or a damaged one.
template <typename Message, typename Stream>
absl::StatusOr<Message> ReadSealed(Stream& stream) {
  rpc::Sealed sealed;
  if (!stream.Read(&sealed)) return absl::DataLossError("the call ended before its message came");
  Message message;
  WEFT_RETURN_IF_ERROR(Unseal(sealed, message));
  return message;
}

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_SEAL_H_
