#include "distributed/grpc/status_codec.h"

#include <string>

namespace weft {
namespace {

constexpr char kAnsweredKey[] = "weft-answered";

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kLongestErrorText)));
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status AnswerWith(grpc::ServerContext& context, const absl::Status& status) {
  if (!status.ok()) context.AddTrailingMetadata(kAnsweredKey, "1");
  return ToGrpc(status);
}

bool WasAnswered(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().contains(kAnsweredKey);
}

}  // namespace weft
