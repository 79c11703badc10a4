// Sealed messages: what a control call carries arrives as it was sent, or not at all.
#ifndef WEFT_DISTRIBUTED_GRPC_SEAL_H_
#define WEFT_DISTRIBUTED_GRPC_SEAL_H_

#include <google/protobuf/message_lite.h>

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
