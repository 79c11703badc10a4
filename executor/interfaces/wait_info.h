// WaitInfo: what a rank was waiting for when an error ended its wait. It is a payload of the
// status, so that the coordinator can report the wait of every rank.
#ifndef WEFT_EXECUTOR_INTERFACES_WAIT_INFO_H_
#define WEFT_EXECUTOR_INTERFACES_WAIT_INFO_H_

#include <string>

#include "absl/status/status.h"

namespace weft {

// One wait, as text for the error that ends it.
struct WaitInfo {
  std::string what;   // "tensor 'fc1/out'"
  std::string where;  // "node 'receive/fc1/out', step 3, micro-batch 1"; empty: not known (yet)
  std::string whom;   // "from worker:1"
};

// The same error with the note; unchanged when it has one, or is OK.
absl::Status WithWaitInfo(absl::Status status, const WaitInfo& note);
// Says where a noted wait was, once; an error without a note, or with a place, stays as it is.
absl::Status WithWaitPlace(absl::Status status, const std::string& where);

// "tensor 'fc1/out' (node 'receive/fc1/out', step 3, micro-batch 1) from worker:1"; "" without a
// note.
std::string WaitText(const absl::Status& status);
// For errors that come over the wire: WaitText gives `text` again. An empty one adds nothing.
absl::Status WithWaitText(absl::Status status, const std::string& text);

}  // namespace weft

#endif  // WEFT_EXECUTOR_INTERFACES_WAIT_INFO_H_
