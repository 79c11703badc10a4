// OwnedRowsWatch: finds bits that flip, between two updates, in what no other rank has a copy of.
#ifndef WEFT_EXECUTOR_VARIABLES_OWNED_ROWS_WATCH_H_
#define WEFT_EXECUTOR_VARIABLES_OWNED_ROWS_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/interfaces/update_guard.h"
#include "executor/variables/variable_store.h"
#include "platform/clock.h"

namespace weft {

// ZeRO splits variables over the replicas. What is wrong in a rank's own rows goes into its next
// update, and from there to all replicas alike: comparing those finds nothing any more. But from
// the end of one update to the begin of the next nothing of the job changes the rows. So this takes
// checksums (XXH3) of pieces after a step, and compares them before the next one updates.
//
// It takes at most a hundredth of the time of the steps. Where all rows do not fit into that, it
// goes round them, a part after each step. What happens from the end of the last backward pass to
// the end of the step, and in the memory of devices that the host does not reach, it does not see.
// Writes through the store are no faults.
//
// Borrows what it is given; they outlive it. One thread at a time calls it.
class OwnedRowsWatch final : public UpdateGuard {
 public:
  OwnedRowsWatch(Clock& clock, VariableStore& variables) : clock_(clock), variables_(variables) {}
  OwnedRowsWatch(const OwnedRowsWatch&) = delete;
  OwnedRowsWatch& operator=(const OwnedRowsWatch&) = delete;

  // Adds those of these variables that are split over the data axis, once each. NotFound for one
  // that the store does not have. REQUIRES: the host reaches the store's memory.
  absl::Status Add(const std::vector<std::string>& variables);
  // A step that may have updated them has ended, and has taken so long.
  absl::Status AfterStep(int64_t step, int64_t nanoseconds);
  // DataLoss, naming variable and steps, where a piece has other bits than after the step before.
  absl::Status BeforeUpdates(int64_t step) override;
  // Bytes under watch now.
  int64_t watched_bytes() const;

 private:
  struct Watched {
    std::string name;
    int64_t bytes = 0;
  };
  struct Piece {
    size_t variable = 0;  // of watched_
    int64_t first = 0;    // byte
    int64_t bytes = 0;
    uint64_t digest = 0;
  };
  absl::StatusOr<uint64_t> DigestOf(const Piece& piece);
  // The piece that comes next in the round.
  Piece Next();

  Clock& clock_;
  VariableStore& variables_;
  std::vector<Watched> watched_;
  int64_t bytes_ = 0;  // of all of them
  size_t next_ = 0;    // the variable of the next piece
  int64_t first_ = 0;  // its first byte
  std::vector<Piece> pieces_;
  int64_t step_ = -1;         // that pieces_ are of
  int64_t writes_ = 0;        // VariableStore::writes then
  int64_t credit_nanos_ = 0;  // that may be spent; below 0 after spending
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLES_OWNED_ROWS_WATCH_H_
