// SPDX-License-Identifier: Apache-2.0
// Gives its options to the precompiled headers of all tests (CwTargets.cmake).
int main() { return 0; }
