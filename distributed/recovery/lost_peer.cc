#include "distributed/recovery/lost_peer.h"

#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr char kLostPeer[] = "weft/lost_peer";

}  // namespace

absl::Status WithLostPeer(absl::Status status, RankId peer) {
  if (status.ok() || !peer.valid() || status.GetPayload(kLostPeer).has_value()) return status;
  status.SetPayload(kLostPeer, absl::Cord(absl::StrCat(peer.value)));
  return status;
}

RankId LostPeerOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kLostPeer);
  int32_t peer = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &peer)) return RankId();
  return RankId(peer);
}

}  // namespace weft
