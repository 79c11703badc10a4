#include "executor/variables/owned_rows_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

// A step's time over what is spent in and after it.
constexpr int64_t kStepsPerOwnedWatch = 100;
// Small enough for a core's cache, and to end soon.
constexpr int64_t kOwnedPieceBytes = int64_t{64} << 10;

}  // namespace

absl::Status OwnedRowsWatch::Add(const std::vector<std::string>& variables) {
  for (const std::string& name : variables) {
    const VariableShard* const shard = variables_.Find(name);
    if (shard == nullptr) {
      return absl::NotFoundError(absl::StrCat("no variable '", name, "' to watch on this rank"));
    }
    const int64_t bytes = DTypeBytes(shard->dtype, shard->local_shape.num_elements());
    const bool is_known = std::any_of(watched_.begin(), watched_.end(),
                                      [&name](const Watched& one) { return one.name == name; });
    if (shard->data_shards < 2 || bytes == 0 || is_known) continue;
    watched_.push_back({name, bytes});
    bytes_ += bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> OwnedRowsWatch::DigestOf(const Piece& piece) {
  WEFT_ASSIGN_OR_RETURN(const void* const memory,
                        variables_.DevicePointer(watched_[piece.variable].name));
  const auto* const bytes = static_cast<const std::byte*>(memory) + piece.first;
  return Checksum(std::span(bytes, static_cast<size_t>(piece.bytes)));
}

OwnedRowsWatch::Piece OwnedRowsWatch::Next() {
  const Watched& variable = watched_[next_];
  const Piece piece = {next_, first_, std::min(variable.bytes - first_, kOwnedPieceBytes), 0};
  first_ += piece.bytes;
  if (first_ == variable.bytes) {
    next_ = (next_ + 1) % watched_.size();
    first_ = 0;
  }
  return piece;
}

absl::Status OwnedRowsWatch::AfterStep(int64_t step, int64_t nanoseconds) {
  pieces_.clear();
  if (bytes_ == 0) return absl::OkStatus();
  step_ = step;
  writes_ = variables_.writes();
  credit_nanos_ += nanoseconds / kStepsPerOwnedWatch;
  int64_t seen = 0;
  while (credit_nanos_ >= 0 && seen < bytes_) {
    const int64_t begin = clock_.MonotonicNanos();
    Piece piece = Next();
    WEFT_ASSIGN_OR_RETURN(piece.digest, DigestOf(piece));
    pieces_.push_back(piece);
    seen += piece.bytes;
    // It is read once more before the next update.
    credit_nanos_ -= 2 * (clock_.MonotonicNanos() - begin);
  }
  // What a whole round did not need is not saved for later.
  credit_nanos_ = std::min<int64_t>(credit_nanos_, 0);
  return absl::OkStatus();
}

absl::Status OwnedRowsWatch::BeforeUpdates(int64_t step) {
  if (variables_.writes() != writes_) pieces_.clear();
  for (const Piece& piece : pieces_) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t digest, DigestOf(piece));
    if (digest == piece.digest) continue;
    return absl::DataLossError(absl::StrCat(
        "bytes ", piece.first, " to ", piece.first + piece.bytes - 1, " of this rank's part of '",
        watched_[piece.variable].name, "' have changed in memory between the update of step ",
        step_, " and that of step ", step,
        ", which nothing of the job does (a flipped bit?); step ", step,
        " has updated nothing here; resume from the last checkpoint, and if it happens again, "
        "take this machine out"));
  }
  pieces_.clear();
  return absl::OkStatus();
}

int64_t OwnedRowsWatch::watched_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.bytes;
  return bytes;
}

}  // namespace weft
