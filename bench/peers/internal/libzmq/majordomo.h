/* majordomo_broker runs a broker of MDP/0.1 in the design of the guide on a ROUTER that
   is bound, until receiving fails. It returns the errno of that. */
int majordomo_broker (void *router);
