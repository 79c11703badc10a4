#include "distributed/grpc/status_codec.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "distributed/recovery/lost_peer.h"
#include "executor/interfaces/wait_info.h"

namespace weft {
namespace {

constexpr char kAnsweredKey[] = "weft-answered";
constexpr char kLostPeerKey[] = "weft-lost-peer";
constexpr char kWaitKey[] = "weft-wait-bin";  // any bytes
// Of the 8 KiB that headers may have, the text of the error has its share.
constexpr size_t kLongestWaitText = 1000;

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
  const std::string wait = WaitText(status).substr(0, kLongestWaitText);
  if (!wait.empty()) context.AddTrailingMetadata(kWaitKey, wait);
  if (const RankId peer = LostPeerOf(status); peer.valid()) {
    context.AddTrailingMetadata(kLostPeerKey, absl::StrCat(peer.value));
  }
  return ToGrpc(status);
}

absl::Status AnswerOf(const grpc::ClientContext& context, const grpc::Status& status) {
  const auto& metadata = context.GetServerTrailingMetadata();
  absl::Status error = FromGrpc(status);
  const auto peer = metadata.find(kLostPeerKey);
  int32_t rank = 0;
  if (peer != metadata.end() &&
      absl::SimpleAtoi(absl::string_view(peer->second.data(), peer->second.size()), &rank)) {
    error = WithLostPeer(std::move(error), RankId(rank));
  }
  const auto wait = metadata.find(kWaitKey);
  if (wait == metadata.end()) return error;
  return WithWaitText(std::move(error), std::string(wait->second.data(), wait->second.size()));
}

bool WasAnswered(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().contains(kAnsweredKey);
}

}  // namespace weft
