#include "tensor/fault_status.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(FaultStatusTest, WhatNobodyReportedIsOk) { EXPECT_TRUE(FaultStatus(DeviceFault{}).ok()); }

TEST(FaultStatusTest, SaysWhoFoundWhatWhereAndWhatWasExpected) {
  DeviceFault fault;
  fault.is_set = 1;
  fault.value = 7;
  fault.position = 12;
  fault.low = -4;
  fault.high = 4;
  fault.source = "Gather 'embed': index";
  EXPECT_EQ(FaultStatus(fault),
            absl::InvalidArgumentError("Gather 'embed': index is 7 at element 12, so that it is "
                                       "not in [-4, 4); check the data that the model is given"));
}

TEST(FaultStatusTest, ASourceIsNotNeeded) {
  DeviceFault fault;
  fault.is_set = 1;
  EXPECT_EQ(FaultStatus(fault).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft
