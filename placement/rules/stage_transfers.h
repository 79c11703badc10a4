// What travels between the places of a pipeline. Place p of P runs the stages p, p + P, ...
// Internal to placement/.
#ifndef WEFT_PLACEMENT_RULES_STAGE_TRANSFERS_H_
#define WEFT_PLACEMENT_RULES_STAGE_TRANSFERS_H_

#include <optional>

#include "graph/graph.h"

namespace weft {

inline int PlaceOfStage(int stage, int places) { return stage % places; }

// When a value of a micro-batch that stage `from` makes travels to another stage `to` that reads
// it: forward, or in the backward pass, which then brings values of the forward pass too. nullopt:
// it may not, since the backward pass goes from late stages to early ones.
inline std::optional<Phase> PhaseOfTransfer(bool is_made_forward, int from, int to) {
  if (is_made_forward && from < to) return Phase::kForward;
  if (from > to) return Phase::kBackward;
  return std::nullopt;
}

// When a stage reads a value that another place has.
struct StageRead {
  Phase phase = Phase::kForward;
  int stage = 0;
};

// A place takes a value once, however many of its stages read it: at the first read. The backward
// pass reaches the later of two stages first.
inline StageRead FirstRead(const StageRead& a, const StageRead& b) {
  if (a.phase != b.phase) return a.phase < b.phase ? a : b;
  const bool is_a = a.phase == Phase::kBackward ? a.stage >= b.stage : a.stage <= b.stage;
  return is_a ? a : b;
}

}  // namespace weft

#endif  // WEFT_PLACEMENT_RULES_STAGE_TRANSFERS_H_
