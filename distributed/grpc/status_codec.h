// Errors across the wire, and who made them: the program at the other end, or the connection.
#ifndef WEFT_DISTRIBUTED_GRPC_STATUS_CODEC_H_
#define WEFT_DISTRIBUTED_GRPC_STATUS_CODEC_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>

#include "absl/status/status.h"

namespace weft {

// Longer texts are cut: they travel in headers, of which gRPC allows 8 KiB.
inline constexpr size_t kLongestErrorText = 2000;

// The codes are the same.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// Marks the error of a call as one that the program at this end returned; its WaitInfo goes with
// it.
grpc::Status AnswerWith(grpc::ServerContext& context, const absl::Status& status);
// True when the finished call's status was given by AnswerWith.
bool WasAnswered(const grpc::ClientContext& context);
// The error as the program at the other end returned it. REQUIRES: WasAnswered.
absl::Status AnswerOf(const grpc::ClientContext& context, const grpc::Status& status);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_STATUS_CODEC_H_
