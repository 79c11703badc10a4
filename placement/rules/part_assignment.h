// Which part of a model each node and variable lies on. A part is one of the consecutive pieces
// that the forward pass is cut into: a pipeline stage for the partitioner, a unit for the search
// (several units make a stage). The rules commute with that: joining consecutive parts before or
// after gives the same. Internal to placement/.
#ifndef WEFT_PLACEMENT_RULES_PART_ASSIGNMENT_H_
#define WEFT_PLACEMENT_RULES_PART_ASSIGNMENT_H_

#include <vector>

#include "placement/rules/step_skeleton.h"

namespace weft {

inline constexpr int kNoPart = -1;

struct PartAssignment {
  std::vector<int> nodes;   // by NodeId; kNoPart where there is no such node
  std::vector<int> owners;  // by index of the variable: the part that updates it
};

// `entries`, by NodeId: the part that is given for a forward node, or kNoPart.
//  * A forward node without an entry: the latest part among the nodes that it reads; else (it reads
//    only variables, constants and inputs) the earliest among its forward readers; else the last.
//  * A variable: the earliest part that reads it going forward, else the first; optimizer state:
//    its parameter's.
//  * A backward node: the part of its forward node, else of the variable or value that it is the
//    gradient of; never later than the backward nodes that it reads. One without any of these (the
//    seed): its latest reader's.
//  * A boundary: where its input is made, else the last.
//  * A step node: the owner of the variable that it names as its origin; else the last part if it
//    leads to a report that the backward pass has no part in (the loss); else the owner of the
//    first variable whose update it leads to; else the last.
PartAssignment AssignParts(const StepSkeleton& skeleton, std::vector<int> entries, int parts);

}  // namespace weft

#endif  // WEFT_PLACEMENT_RULES_PART_ASSIGNMENT_H_
