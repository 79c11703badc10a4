// FiniteWatch: looks between steps whether the variables that steps change still hold numbers.
#ifndef WEFT_EXECUTOR_VARIABLES_FINITE_WATCH_H_
#define WEFT_EXECUTOR_VARIABLES_FINITE_WATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/variables/variable_store.h"
#include "platform/clock.h"
#include "tensor/tensor.h"

namespace weft {

// A loss does not see each number that an update makes: an embedding row that no sample uses can
// overflow unnoticed. So this goes round the variables in small pieces, as many after a step as fit
// in a hundredth of the time that steps have taken. It begins when they have taken a second: a
// shorter run is seen at its end, when its values are read. Ranks that each watch their own
// variables do so in the same gaps, and wait for nobody.
//
// Borrows what it is given; they outlive it. One thread calls it, while no step runs.
class FiniteWatch {
 public:
  FiniteWatch(Clock& clock, VariableStore& variables);
  FiniteWatch(const FiniteWatch&) = delete;
  FiniteWatch& operator=(const FiniteWatch&) = delete;

  // Adds variables, those that are there already once. Left out are optimizer slots, which no model
  // holds (checkpoints look at them), and those without floating numbers of 16 bits or more.
  // NotFound for one that the store does not have.
  absl::Status Add(const std::vector<std::string>& variables);
  // A step has taken so long. OutOfRange, naming variable and element (of this rank's part), where
  // one that is looked at now holds an infinity or a NaN.
  absl::Status AfterStep(int64_t nanoseconds);

 private:
  struct Watched {
    DType dtype = DType::kInvalid;
    int64_t elements = 0;
  };
  // Looks at the next piece; gives its number of elements.
  absl::StatusOr<int64_t> CheckNext();

  Clock& clock_;
  VariableStore& variables_;
  std::map<std::string, Watched> watched_;
  int64_t elements_ = 0;  // of all of them
  std::map<std::string, Watched>::iterator
      next_;              // the variable of the next piece; end(): the first
  int64_t first_ = 0;     // its first element
  Tensor piece_;          // host memory of one piece
  int64_t credit_nanos_;  // that may be spent; below 0 after spending
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLES_FINITE_WATCH_H_
